// Package report tells what simulations came to: as a table for terminals, as rows of JSON, and as one page of HTML with plots.
//
// A Watch rides on each simulation and gathers what its sim.Result does not tell. A Report puts the policies side by side, each
// with a Run per seed, and compares all of them with the first.
package report
