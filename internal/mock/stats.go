package mock

import (
	"sync/atomic"
)

// Stats is a snapshot of an engine's counters since New. Requests are calls of the API: POST under /v1, not models, health, metrics or
// control. When nothing is running, Started = Completed + Aborted + Cut.
type Stats struct {
	Started   int64 `json:"started"`
	Completed int64 `json:"completed"` // answered to the end, whatever the status
	Aborted   int64 `json:"aborted"`   // the client left first
	Cut       int64 `json:"cut"`       // a fault, Kill or Close ended the answer before its end
	Faults    int64 `json:"faults"`    // requests that a fault hit

	Running int `json:"running"` // holding a slot, or in the batch
	Waiting int `json:"waiting"` // queued for that

	PromptTokens int64 `json:"prompt_tokens"` // of requests whose prompt was read to the end
	OutputTokens int64 `json:"output_tokens"` // sent

	// Of a timing model since its last Start: prompt tokens found in its cache, how often a request lost its memory, and how often an adapter
	// was loaded.
	CachedTokens uint64 `json:"cached_tokens"`
	Preemptions  uint64 `json:"preemptions"`
	AdapterLoads uint64 `json:"adapter_loads"`

	Connections     int64 `json:"connections"`      // accepted so far
	OpenConnections int64 `json:"open_connections"` // open now

	Statuses map[int]int64 `json:"statuses"` // answered requests by status
}

type counters struct {
	started, completed, aborted, cut, faults atomic.Int64
	promptTokens, outputTokens, heldTokens   atomic.Int64 // held: prompt and output of running requests, for the KV gauge
	stopped, limited                         atomic.Int64 // answers that the engine gave to the end: by themselves, by the request's limit
	connections, open                        atomic.Int64
	statuses                                 [600]atomic.Int64
}

// Stats returns the counters now. The numbers are read one after another, not as of one instant.
func (e *Engine) Stats() Stats {
	c := &e.count
	s := Stats{
		Completed: c.completed.Load(), Aborted: c.aborted.Load(), Cut: c.cut.Load(), Faults: c.faults.Load(),
		PromptTokens: c.promptTokens.Load(), OutputTokens: c.outputTokens.Load(),
		Connections: c.connections.Load(), OpenConnections: c.open.Load(),
		Statuses: map[int]int64{},
	}
	s.Started = c.started.Load() // after the ends, so that the sum of the ends never exceeds it
	for _, l := range e.loads() {
		s.Running += l.running
		s.Waiting += l.waiting
		s.CachedTokens += l.cached
		s.Preemptions += l.preemptions
		s.AdapterLoads += l.adapterLoads
	}
	for status := range c.statuses {
		if n := c.statuses[status].Load(); n > 0 {
			s.Statuses[status] = n
		}
	}
	return s
}
