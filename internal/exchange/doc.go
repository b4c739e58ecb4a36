// Package exchange is one client request as a state machine: it owns the attempts, the deadlines, the
// retry budget's use, the fallback chain and the commit. Events go in, actions come out; the shell that
// runs the actions owns the sockets and the one timer. Nothing here asks a clock or does I/O.
//
//	started ─▶ (wait in queue) ─▶ dispatch ─▶ content ─▶ commit ─▶ ended ─▶ finish
//	                 ▲               │ ended before commit, may be repeated
//	                 └───────────────┘
package exchange
