// Package sim runs the production exchange, router and strategies in virtual time: a discrete-event simulator.
//
// A Source brings requests, each comes to one of the balancers of a Fleet, and an exchange sends it to a Server, which is a
// model of an engine. The Fleet is the shell that internal/proxy is in a process: it reports what happens to the exchange,
// and does what that says. There is no goroutine and no clock: equal Options give bit-identical Results.
//
// Randomness comes from one stream per purpose, and what a request is made of does not depend on where it goes. Two runs
// that differ in their strategy alone see the same requests at the same times, so that their difference is the strategy's.
package sim
