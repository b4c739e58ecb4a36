package route

import (
	"cmp"
	"iter"
	"math"
	"time"
)

// Signal is what an engine said of itself when it was asked. Routing is right without any: a signal tells of what others send there and of
// how large a cache is, fades with its age, and takes nobody out.
type Signal struct {
	At          time.Time // when it was asked: what it says is as old as that
	Running     int       // requests that it works on, NotTold = it does not say
	Waiting     int       // requests that it has not begun with, NotTold = it does not say
	KVUse       float64   // part of its KV cache that running requests hold, 0 to 1; NotTold = it does not say
	CacheTokens int       // tokens that its cache holds, 0 = it does not say
	Unloaded    bool      // the model is not in its memory: the next request waits until it is
	Several     bool      // it is of several engines together, each of which has a queue of its own
	Rank        string    // the data-parallel rank that says it, as Deployment.Rank
	Adapters    *Adapters // nil = it does not say
}

// Adapters is what an engine says of the adapters (LoRA) of its model. It is a value that nobody changes any more.
type Adapters struct {
	Room   int      // that can be in its memory at one time, at least 1
	Active []string // that have requests there
}

// over returns s with what it leaves out as an earlier one had it, if that was just before: what the head of an answer tells is a part of what a
// page does. Sizes stay.
func (s Signal) over(before *Signal) Signal {
	s.CacheTokens, s.Adapters = cmp.Or(s.CacheTokens, before.CacheTokens), cmp.Or(s.Adapters, before.Adapters)
	if s.At.Sub(before.At) > partsWithin {
		return s
	}
	if s.Running == NotTold {
		s.Running = before.Running
	}
	if s.Waiting == NotTold {
		s.Waiting = before.Waiting
	}
	if s.KVUse == NotTold {
		s.KVUse = before.KVUse
	}
	return s
}

// NotTold stands for numbers that an engine does not tell: unknown is neither idle nor busy.
const NotTold = -1

// Untold returns a Signal of a time that tells nothing yet.
func Untold(at time.Time) Signal {
	return Signal{At: at, Running: NotTold, Waiting: NotTold, KVUse: NotTold}
}

const (
	waitingHalfLife = time.Second      // after which what others had waiting there counts half
	runningHalfLife = 5 * time.Second  // and what they had running
	signalGone      = 20 * time.Second // after which it counts for nothing
	contradiction   = 3                // times as many requests as there are
	leastDispute    = 4                // requests: fewer, more or less, are on their way
	loadPrior       = 5.0              // seconds that loading a model takes, before any was seen
	adapterPrior    = 0.5              // and an adapter, which is some hundred MB from a disk
	loadMemory      = 4                // loads over which it is a mean
	partsWithin     = 2 * time.Second  // signals of the same load, if one leaves out what the other tells
	disputeFor      = 30 * time.Second // after which who contradicts is not believed, or believed again
)

// hint is what is made of an engine's signals. Guarded by Router.mu.
type hint struct {
	told    Signal  // the last one
	waiting float64 // requests of others that waited then
	answers float64 // and that were being worked on
	fill    float64 // part of the cache, beyond what ours take
	load    mean    // seconds that loading the model took, or an adapter of it

	ignored bool      // it contradicts what we know
	dispute time.Time // since when it is otherwise than ignored says, zero = it is not

	ours mean // of what we had there in flight, the part that it told of
}

// others is what requests of others take somewhere.
type others struct {
	wait    float64 // seconds until those that waited are done
	answers float64
	fill    float64 // part of the cache
}

// others returns what is left of what was told, where a prompt takes so many seconds: those that waited are done one after the other
// meanwhile, and all of it counts for less the older it is.
func (h *hint) others(now time.Time, prompt float64) others {
	if h == nil || h.ignored {
		return others{}
	}
	age := max(now.Sub(h.told.At), 0)
	if age > signalGone {
		return others{}
	}
	half := func(life time.Duration) float64 { return math.Exp2(-float64(age) / float64(life)) }
	running := half(runningHalfLife)
	return others{half(waitingHalfLife) * max(h.waiting*prompt-age.Seconds(), 0), running * h.answers, running * h.fill}
}

// loads is how many seconds loading takes, prior if that was not seen yet.
func (h *hint) loads(prior float64) float64 {
	if h.load.n == 0 {
		return prior
	}
	return max(h.load.value, leastSeconds) // never nothing, or what it takes later would not be learned
}

// size is how many tokens the cache holds, as was told last, 0 = never.
func (h *hint) size() int {
	if h == nil {
		return 0
	}
	return h.told.CacheTokens
}

// own is what ours are at an engine.
type own struct {
	inFlight int
	pending  int // without a first token
	tokens   int // reserved
}

// take keeps a signal, and reports whether from now on it is ignored, or believed again.
func (h *hint) take(now time.Time, s Signal, o own, cacheTokens int) (changed bool) {
	if s.At.Before(h.told.At) {
		return false
	}
	s = s.over(&h.told)
	changed = h.judge(now, h.disputes(&s, o))
	running, waiting := max(s.Running, 0), max(s.Waiting, 0)
	if s.Several {
		h.ours = mean{}
	} else if s.Running != NotTold && s.Waiting != NotTold && o.inFlight >= leastDispute {
		h.ours.addOf(min(float64(running+waiting)/float64(o.inFlight), 1), oursMemory)
	}
	others := float64(max(running+waiting-o.inFlight, 0))
	h.waiting = min(float64(max(waiting-o.pending, 0)), others)
	h.answers, h.fill = 0, 0
	if s.Running != NotTold {
		h.answers = others - h.waiting
	}
	if s.KVUse != NotTold && cacheTokens > 0 {
		h.fill = max(min(s.KVUse, 1)-float64(o.tokens)/float64(cacheTokens), 0)
	}
	h.told = s
	return changed
}

// disputes reports whether a signal cannot be true: ours alone are many more than it tells of, or it tells of many more and nothing of
// what it tells has changed. Many more alone are what others send there.
func (h *hint) disputes(s *Signal, o own) bool {
	if s.Running == NotTold {
		return false
	}
	told := s.Running + max(s.Waiting, 0)
	switch {
	case o.inFlight-told >= leastDispute:
		return o.inFlight > contradiction*told
	case told-o.inFlight >= leastDispute:
		return told > contradiction*o.inFlight && s.Running == h.told.Running && s.Waiting == h.told.Waiting
	}
	return false
}

func (h *hint) judge(now time.Time, disputed bool) (changed bool) {
	if disputed == h.ignored {
		h.dispute = time.Time{}
		return false
	}
	if h.dispute.IsZero() {
		h.dispute = now
	}
	if now.Sub(h.dispute) < disputeFor {
		return false
	}
	h.ignored, h.dispute = disputed, time.Time{}
	return true
}

// Dispute says that from now on the signals of an endpoint are ignored, since for 30 s they contradicted what was in flight there; or that
// they are believed again.
type Dispute struct {
	Ignored          bool
	InFlight         int // of ours
	Running, Waiting int // as told
}

// Signal takes what the engine at an endpoint says of itself, of one model there or, if model is "", of all; where there are ranks, what
// s.Rank says. It returns nil unless its signals are ignored from now on, or believed again.
func (r *Router) Signal(now time.Time, endpoint Scope, model string, s Signal) *Dispute {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.units[endpoint.key()]
	if u == nil {
		return nil
	}
	tells := func(n *node) bool { return (model == "" || n.dep.Model == model) && n.dep.Rank == s.Rank }
	var o own
	for e := range r.enginesOf(u.sharers, tells) {
		o.inFlight += e.running
		o.pending += e.line.waiting
		o.tokens += e.held
	}
	var d *Dispute
	for e, n := range r.enginesOf(u.sharers, tells) {
		if e.hint == nil {
			e.hint = &hint{}
		}
		r.resize(n, s.CacheTokens)
		if e.hint.take(now, s, o, e.memory.tokens) {
			d = &Dispute{Ignored: e.hint.ignored, InFlight: o.inFlight, Running: s.Running, Waiting: s.Waiting}
		}
		e.tell(s.Adapters)
	}
	return d
}

// enginesOf yields the engines of those who are wanted, each once, with the first of its own among them.
func (r *Router) enginesOf(nodes []*node, wanted func(*node) bool) iter.Seq2[*engine, *node] {
	r.asked++
	turn := r.asked
	return func(yield func(*engine, *node) bool) {
		for _, n := range nodes {
			if wanted(n) && n.engine.asked != turn {
				n.engine.asked = turn
				if !yield(n.engine, n) {
					return
				}
			}
		}
	}
}

// resize gives a deployment's memory the size that its engine tells, where nobody else said one.
func (r *Router) resize(n *node, told int) {
	if n.dep.Cache == 0 && told > 0 && told != n.memory.tokens {
		n.memory.tokens = told
		r.index.Resize(n.memory.holder, n.memory.room(r.blockBytes))
	}
}
