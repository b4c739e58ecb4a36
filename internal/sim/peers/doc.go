// Package peers holds the policies of other routers, one file each, to compare Evenkeel's with. They are written anew from their
// sources' formulas and constants, which each file names; where a source leaves something open, the reading is taken that favours
// the peer. Nothing of what serves traffic can import this package.
//
// A policy is a sim.Policy: it keeps a picture of the deployments from what it sends them, what comes back, and the metrics it
// scrapes. What every router has to keep is in books.go, what those that look at prefixes have in index.go. To add one, write
// its file and add its lines to the table.
package peers
