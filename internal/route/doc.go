// Package route decides which deployment serves a request and keeps count of what that costs.
//
// It is a library of plain state machines: every call takes `now`, every request carries a seed, and
// nothing here asks a clock, starts a goroutine, does I/O or logs. The live proxy, tests and a simulator
// drive the same code, so a decision can be replayed from its record.
//
// The parts:
//
//   - Deployment, Pool: immutable descriptions of what can be picked.
//   - node and unit (private): live state. A unit counts in-flight requests and tokens and has a breaker;
//     a node is the unit of one deployment plus what was learned about it; a scope is a unit shared by
//     deployments (their endpoint, their credential).
//   - Router: one mutex around choose + reserve, so that limits are exact.
//   - Strategy: ranks eligible candidates. It never decides who is eligible.
//   - Lease: the right to use one deployment for one attempt; ended exactly once.
//   - Ticket: a place in the wait queue.
package route
