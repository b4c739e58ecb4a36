// Package drill breaks things around a running evenkeel and checks what it promises: a fixed list of rows, each a fault
// and what holds all the same. The program under test is the real binary in a process of its own, and all traffic goes over
// real sockets of the loopback interface: mock engines behind it, clients of our own before it, and TCP links between
// them that can refuse, reset, fall silent or delay.
//
// A row is an entry of a table in the file of its theme: connect.go, errors.go, streams.go, clients.go, health.go,
// overload.go, lifecycle.go, network.go. It gets a [Bench] with nothing running, builds its scene, breaks it and
// returns what it measured, with an error if the promise was not kept. After every row the invariants of invariants.go
// must hold too.
//
// Times are scaled down where waiting proves no more: all limits of a row by the same factor.
package drill
