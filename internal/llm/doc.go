// Package llm reads what language-model clients and engines say on the wire: facts of a request body, meters that ride
// on an answer, error classes, and our own errors in the client's dialect.
//
// The package is pure: bytes in, bytes out. It starts no goroutine, asks no clock, does no I/O and never changes a byte
// that it was shown. Nothing in it is safe for concurrent use unless it says so; functions without a receiver are.
package llm
