//go:build plan9

package fixture // want a file for some platforms only
