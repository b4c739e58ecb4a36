package engine

import (
	"fmt"
	"time"
)

// Sequence is one request.
type Sequence struct {
	// ID names it in events and in Cancel. It is unique among the requests that the engine has; a cancelled one is there until the
	// running step ends.
	ID uint64
	// Prompt holds the hashes of the prompt's full blocks of Config.BlockTokens tokens, each covering all before it; equal
	// hashes stand for equal prefixes. It may end early: what has no hash is never shared. The engine reads it until the
	// request ends; it must not change.
	Prompt []uint64
	// PromptTokens and OutputTokens are the lengths, both at least 1.
	PromptTokens, OutputTokens int
	// Output continues Prompt by the blocks that the output completes, for a next turn to find. It may be nil; if not,
	// Prompt holds all PromptTokens/BlockTokens full blocks.
	Output []uint64
	// Found is how many tokens of the prompt count as found in the cache when it is first admitted, if that is more than what is there: for
	// a request of the past, of which that is known. They take memory of their own.
	Found int
	// Adapter is the adapter (LoRA) that the request is for, empty for the model itself.
	Adapter string
	// EachToken asks for a Token event for each token between the first and the last.
	EachToken bool
}

// TooLongError says that the engine could never hold a request.
type TooLongError struct {
	ID                         uint64
	PromptTokens, OutputTokens int
	Room                       int // the most tokens of one request, prompt and output, but for the last
}

// Error names the lengths and the limit.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("engine: request %d needs %d prompt and %d output tokens in memory, and the engine holds %d: raise Blocks",
		e.ID, e.PromptTokens, e.OutputTokens, e.Room)
}

// EventKind says what happened.
type EventKind uint8

// The kinds of events.
const (
	FirstToken EventKind = iota // the prompt is computed and the first token out
	Token                       // another token, only with Sequence.EachToken; the last token comes as Done
	Done                        // the last token is out; after FirstToken if there is only one
	Preempted                   // the sequence lost its memory and waits again
)

// Event is something that happened to a request.
type Event struct {
	Kind EventKind
	ID   uint64
	At   time.Duration
	// CachedTokens is how many tokens of the prompt were found in the cache when the request was first admitted.
	CachedTokens int
	// Tokens is how many tokens are out.
	Tokens int
}

// Load is what an engine says of itself: the numbers of a metrics scrape.
type Load struct {
	Running, Waiting int // requests; one whose prompt is in progress runs, but for FIFO
	// WaitingTokens is the prompt tokens that are not computed: of the queue without regard to the cache, and what is left
	// of the prompts in progress.
	WaitingTokens int
	// ContextTokens is the tokens that running requests hold.
	ContextTokens int
	// Blocks is the capacity, Used what running requests hold, Cached what only the cache holds: Used + Cached ≤ Blocks. Legacy
	// may go above it: it has no limit.
	Blocks, Used, Cached int
	// PromptTokens and CachedTokens count the prompt tokens of all admitted requests and those of them found in the cache;
	// Preemptions counts how often a request lost its memory.
	PromptTokens, CachedTokens, Preemptions uint64
	// AdapterLoads counts the adapters that were loaded.
	AdapterLoads uint64
}

// Engine is one engine. It belongs to one goroutine at a time.
type Engine struct {
	cfg   Config
	model model
}

// model is how an engine works: batching or fifo.
type model interface {
	submit(now time.Duration, s Sequence)
	cancel(now time.Duration, j *job)
	step(now time.Duration) []Event
	slow(now time.Duration, factor float64)
	next() (at time.Duration, ok bool)
	load(now time.Duration) Load
	// generated is how many of j's tokens are out.
	generated(j *job, now time.Duration) int
	// has returns the request with this ID.
	has(id uint64) *job
	// cached is how many tokens of j's prompt are in the cache.
	cached(j *job) int
}

// New returns an idle engine with an empty cache. The error names each wrong field of c.
func New(c Config) (*Engine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if c.span == 0 {
		c.span = maxSpan
	}
	e := &Engine{cfg: c}
	if c.Scheduler == FIFO {
		e.model = newFIFO(c)
	} else {
		e.model = newBatching(c)
	}
	return e, nil
}

// Submit gives the engine a request. An idle engine begins at once, a busy one looks at its queue when the running step has
// ended; the time of a step's end still belongs to that step. The error says what is wrong with s, and then the engine has not taken it:
// a length below 1, an ID that it has already, more tokens than it could ever hold (TooLongError), or hashes that do not match the lengths.
func (e *Engine) Submit(now time.Duration, s Sequence) error {
	if s.PromptTokens < 1 || s.OutputTokens < 1 {
		return fmt.Errorf("engine: request %d has %d prompt and %d output tokens: it needs at least one of each", s.ID, s.PromptTokens, s.OutputTokens)
	}
	// The last token is never computed on, so it needs no memory.
	if room := e.cfg.room(); s.OutputTokens > room || s.PromptTokens > room-s.OutputTokens+1 {
		return &TooLongError{ID: s.ID, PromptTokens: s.PromptTokens, OutputTokens: s.OutputTokens, Room: room}
	}
	full := s.PromptTokens / e.cfg.BlockTokens
	if len(s.Prompt) > full {
		return fmt.Errorf("engine: request %d has hashes of %d blocks for %d prompt tokens: they fill %d blocks of %d",
			s.ID, len(s.Prompt), s.PromptTokens, full, e.cfg.BlockTokens)
	}
	if len(s.Output) > 0 && len(s.Prompt) < full {
		return fmt.Errorf("engine: request %d has hashes of its output's blocks, but only %d of %d of its prompt's: give all, or none of the output's",
			s.ID, len(s.Prompt), full)
	}
	if most := (s.PromptTokens+s.OutputTokens)/e.cfg.BlockTokens - full; len(s.Output) > most {
		return fmt.Errorf("engine: request %d has hashes of %d blocks for %d output tokens: they complete at most %d", s.ID, len(s.Output), s.OutputTokens, most)
	}
	if e.model.has(s.ID) != nil {
		return fmt.Errorf("engine: request %d is here already: an ID is free again when its request is done, or the step ends in which it was cancelled", s.ID)
	}
	e.model.submit(now, s)
	return nil
}

// Cancel ends a request whose client left: at once if it waits, at the end of the running step if it runs. What it computed
// stays in the cache. No event follows. It reports whether the engine had the request.
func (e *Engine) Cancel(now time.Duration, id uint64) bool {
	j := e.model.has(id)
	if j == nil || j.cancelled {
		return false
	}
	j.cancelled = true
	e.model.cancel(now, j)
	return true
}

// Step ends the step that ends at now, which is what Next returned, and begins the next. It returns what happened, in
// order; the slice is valid until the next call. Before the end of the running step it does nothing. An engine that runs in
// real time and comes late calls it with the times that Next says, until that is in the future.
func (e *Engine) Step(now time.Duration) []Event {
	if at, ok := e.Next(); !ok || now < at {
		return nil
	}
	return e.model.step(now)
}

// Next returns when the running step ends, and false if the engine is idle. Any other call but Load may change it.
func (e *Engine) Next() (at time.Duration, ok bool) { return e.model.next() }

// Load returns the engine's load at now, as of the last step that ended by then. It changes nothing.
func (e *Engine) Load(now time.Duration) Load { return e.model.load(now) }

// Adapters returns the adapters that running requests are for, and those of waiting ones, each once and in order of arrival.
func (e *Engine) Adapters() (running, waiting []string) {
	b, ok := e.model.(*batching)
	if !ok {
		return nil, nil
	}
	for _, j := range b.running {
		running = appendAdapter(running, j)
	}
	for i := range b.waiting.len() {
		waiting = appendAdapter(waiting, b.waiting.at(i))
	}
	return running, waiting
}

// Slow makes every step from the next one on take factor times as long as Config says: a fault, or 1 to end it. Factor must
// be above 0.
func (e *Engine) Slow(now time.Duration, factor float64) {
	if !positive(factor) {
		panic(fmt.Sprintf("BUG: engine slowed by %v", factor))
	}
	e.model.slow(now, factor)
}

// job is a request that the engine has. While it is among the decoders, generated, kv and blocks are as they were when it joined.
type job struct {
	model     model
	generated int  // tokens out
	target    int  // tokens to compute before the next token comes: prompt, and after a preemption what was generated
	kv        int  // tokens computed
	joined    int  // round in which it joined the decoders
	admitted  bool // it runs
	counted   bool // it ran before, or does
	cancelled bool

	Sequence
	order  uint64 // of arrival
	cached int    // prompt tokens found in the cache when it was first admitted
	blocks int    // blocks it has, held and private
	held   int    // blocks shared with the cache: the first of the sequence
	tail   int32  // the segment of the cache that they end with
	slot   int    // of Slots

	last, every time.Duration // of FIFO, once it decodes: its last token, and the time between two
}

// jobs are the requests of an engine by ID. What leaves is used again.
type jobs struct {
	byID  map[uint64]*job
	spare []*job
	count uint64 // that came
}

func newJobs() jobs { return jobs{byID: make(map[uint64]*job)} }

func (js *jobs) has(id uint64) *job { return js.byID[id] }

// add makes a job of m.
func (js *jobs) add(m model, s Sequence) *job {
	var j *job
	if n := len(js.spare); n > 0 {
		j, js.spare = js.spare[n-1], js.spare[:n-1]
	} else {
		j = new(job)
	}
	js.count++
	*j = job{model: m, Sequence: s, order: js.count, target: s.PromptTokens}
	js.byID[s.ID] = j
	return j
}

// remove forgets j, which nobody may use from then on.
func (js *jobs) remove(j *job) {
	delete(js.byID, j.ID)
	j.Prompt, j.Output = nil, nil
	js.spare = append(js.spare, j)
}

// decoding reports whether the prompt is computed.
func (j *job) decoding() bool { return j.kv >= j.target }

// left is the tokens still to come.
func (j *job) left() int { return j.OutputTokens - j.generated }

// hash returns the hash of the i-th full block of prompt and output, and whether it has one.
func (j *job) hash(i int) (uint64, bool) {
	if i < len(j.Prompt) {
		return j.Prompt[i], true
	}
	if i -= len(j.Prompt); i < len(j.Output) {
		return j.Output[i], true
	}
	return 0, false
}

// hashes returns the hashes of the full blocks of prompt and output from one on up to another, fewer if they have none or where the
// output begins.
func (j *job) hashes(from, to int) []uint64 {
	if p := len(j.Prompt); from < p {
		return j.Prompt[from:min(to, p)]
	} else if from -= p; from < len(j.Output) {
		return j.Output[from:min(to-p, len(j.Output))]
	}
	return nil
}

// event describes the job at the time of its last token.
func (j *job) event(kind EventKind, at time.Duration) Event {
	return Event{Kind: kind, ID: j.ID, At: at, CachedTokens: j.cached, Tokens: j.generated}
}

// tell adds to events what a token that came at a time means.
func (j *job) tell(events []Event, at time.Duration) []Event {
	if j.generated == 1 {
		events = append(events, j.event(FirstToken, at))
	}
	switch {
	case j.left() == 0:
		events = append(events, j.event(Done, at))
	case j.EachToken && j.generated > 1:
		events = append(events, j.event(Token, at))
	}
	return events
}
