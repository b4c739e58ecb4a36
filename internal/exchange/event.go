package exchange

import (
	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

// EventKind names what happened.
type EventKind uint8

// The events a shell reports.
const (
	Started  EventKind = iota // the request is understood; once, first
	Granted                   // the ticket woke the shell
	Held                      // the first part of the answer is held back; Content or Release follows, or the hold times out
	Release                   // the hold must end though there is no content: it is full, or the answer is complete
	Content                   // the first content of the answer came
	Ended                     // the attempt is over, always the last event of an attempt
	Timer                     // the time of Exchange.Wake came
	Gone                      // the client left
	Shutdown                  // the process ends and can wait no longer
)

// Lane says which of the two attempts that an exchange may have at one time is meant.
type Lane uint8

// The lanes.
const (
	Main  Lane = iota // all attempts but hedges
	Hedge             // an attempt that begins while another one runs
	lanes
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	Lane Lane // of Held, Release, Content and Ended: whose
	End  *End // of Ended
}

// End is how an attempt ended, as the shell saw it.
type End struct {
	Outcome route.Outcome
	Class   llm.Class
	Sent    bool // part of the request may have reached upstream
	Held    bool // a whole answer is held and can be passed on as it is
	Broken  bool // the answer stopped before its end
	Once    bool // upstream says that the same request must not come to it again; another deployment may take it
}

// ActionKind names what is to be done.
type ActionKind uint8

// The actions a shell runs, in order.
const (
	Dispatch ActionKind = iota // begin an attempt with Action.Lease, beside the one that may run on the other lane
	Wait                       // nothing, until Granted, Timer or Gone
	Cancel                     // stop the attempt that runs on the lane; its Ended event must follow
	Commit                     // pass on what the attempt on the lane has answered: from here on nothing moves
	Finish                     // the exchange is over, its record final
	Fail                       // tell the client about Action.Failure; then the exchange is over
)

// Action is one thing to do.
type Action struct {
	Kind    ActionKind
	Lane    Lane         // of Dispatch, Cancel and Commit: whose
	Lease   *route.Lease // of Dispatch
	Failure *Failure     // of Fail
}

// Failure is an error of ours, for the client.
type Failure struct {
	Status  int    // HTTP status, if nothing was sent yet
	Code    string // evenkeel_*
	Message string // counts reasons; names nothing the client may not use
	RetryIn int64  // milliseconds after which repeating makes sense, 0 = unknown
	Final   bool   // repeating is useless
	Cut     bool   // content was already sent
}
