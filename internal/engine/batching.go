package engine

import (
	"cmp"
	"slices"
	"time"
)

// batching is the model of engines that compute many requests in each step: Mixed, PrefillFirst, Slots and Legacy.
type batching struct {
	cfg Config
	mem memory
	jobs

	// Both are in order of arrival, and what runs came before what waits: a preempted job is the last that runs, and becomes the
	// first that waits.
	running  []*job
	waiting  queue
	decoders decoders // those that run and whose prompts are computed
	leaving  []*job   // were cancelled while they ran
	out      []*job   // scratch of finish

	now    span
	pace   float64 // how many times as long as Config says a step takes
	loaded bool    // the model is loaded, or loads
	warm   int     // steps left of the warm-up

	adapters []string // in memory, the one used last first
	loads    uint64   // of adapters

	prompts, hits, preemptions uint64
	events                     []Event
}

// span is the running step, or several alike.
type span struct {
	busy       bool // false: the engine is idle
	start, end time.Duration
	steps      int // 0: the model loads

	chunks  []chunk // prompt tokens it computes; if any, it is one step
	decodes int     // sequences that decode in it
	loads   int     // adapters that are loaded before it
	context int     // tokens of their context in the first step

	fixed float64 // seconds of each step but for decoding
	pace  float64 // factor on all of it

	seen   int           // steps that had ended when somebody looked last, see past
	seenAt time.Duration // the end of the last of them
}

// chunk is n prompt tokens of a job.
type chunk struct {
	*job
	n int
}

func newBatching(c Config) *batching {
	b := &batching{cfg: c, jobs: newJobs(), decoders: newDecoders(c.BlockTokens), pace: 1, warm: c.WarmUpSteps}
	switch c.Scheduler {
	case Slots:
		b.mem = newSlotCaches(c)
	case Legacy:
		b.mem = newSessionCache(c)
	default:
		b.mem = newBlockCache(c)
	}
	return b
}

func (b *batching) next() (time.Duration, bool) { return b.now.end, b.now.busy }

func (b *batching) submit(now time.Duration, s Sequence) {
	b.waiting.push(b.add(b, s))
	switch {
	case !b.loaded && b.cfg.Load > 0:
		b.now = span{busy: true, start: now, end: now + b.cfg.Load}
	case !b.now.busy:
		b.plan(now)
	default:
		b.cut(now)
	}
	b.loaded = true
}

func (b *batching) cancel(now time.Duration, j *job) {
	if j.admitted {
		b.leaving = append(b.leaving, j)
	} else {
		b.waiting.remove(j)
		b.remove(j)
	}
	b.cut(now)
}

func (b *batching) slow(now time.Duration, factor float64) {
	b.pace = factor
	b.cut(now)
}

func (b *batching) step(now time.Duration) []Event {
	b.events = b.events[:0]
	b.finish()
	b.plan(now)
	return b.events
}

// finish gives the jobs what the span has computed.
func (b *batching) finish() {
	s := &b.now
	if s.decodes > 0 {
		b.advance(s.steps, s.end)
	}
	out := b.decoders.due(b.out[:0])
	for _, c := range s.chunks {
		c.kv += c.n
		b.mem.computed(c.job)
		if c.decoding() {
			c.generated++
			out = append(out, c.job)
		}
	}
	for _, j := range b.leaving {
		b.decoders.leave(j)
		out = append(out, j)
	}
	b.leaving = b.leaving[:0]
	slices.SortFunc(out, func(x, y *job) int { return cmp.Compare(x.order, y.order) })
	b.out = slices.Compact(out)
	for _, j := range b.out {
		if !j.cancelled {
			b.events = j.tell(b.events, s.end)
			if j.left() > 0 {
				b.decoders.join(j)
				continue
			}
		}
		at := slices.Index(b.running, j)
		b.running = slices.Delete(b.running, at, at+1)
		b.mem.release(j)
		b.remove(j)
	}
}

// advance takes the first n steps of the span, which end at now, from it. The memory for the first of them was taken when it began.
func (b *batching) advance(n int, now time.Duration) {
	s, d := &b.now, &b.decoders
	b.mem.take(d.blocks(d.round+1, d.round+n))
	d.advance(n)
	s.start = now
	s.steps -= n
	s.context += n * s.decodes
	s.seen = 0
}

// cost is what the i-th step of the span takes.
func (s *span) cost(c *Config, i int) time.Duration {
	context := s.context + i*s.decodes
	return duration((s.fixed + c.Timing.decode(s.decodes, context, c.Blocks*c.BlockTokens)) * s.pace)
}

// cut ends the span with the step that runs at now: what is to come may be planned differently.
func (b *batching) cut(now time.Duration) {
	s := &b.now
	if !s.busy || s.steps <= 1 {
		return
	}
	end := s.start
	for i := range s.steps {
		end += s.cost(&b.cfg, i)
		if end >= now {
			s.steps, s.end = i+1, end
			return
		}
	}
}

// past returns how many steps of the span have ended by now, before its end. Who asks often does not count them anew.
func (s *span) past(c *Config, now time.Duration) int {
	if !s.busy || s.steps <= 1 || now >= s.end {
		return s.seen
	}
	if s.seen == 0 {
		s.seenAt = s.start
	}
	for {
		end := s.seenAt + s.cost(c, s.seen)
		if end > now {
			return s.seen
		}
		s.seen, s.seenAt = s.seen+1, end
	}
}

// settle takes the steps from the span that have ended by now, so that Load can tell what they left.
func (b *batching) settle(now time.Duration) {
	if now >= b.now.end {
		return
	}
	if n := b.now.past(&b.cfg, now); n > 0 {
		b.advance(n, b.now.seenAt)
		b.mem.take(b.decoders.blocks(b.decoders.round, b.decoders.round+1)) // as the plan of the step that runs now would
	}
}

// plan begins the next step at now.
func (b *batching) plan(now time.Duration) {
	s := &b.now
	*s = span{start: now, chunks: s.chunks[:0], pace: b.pace}
	if b.cfg.Scheduler == PrefillFirst {
		b.prefill(b.cfg.StepTokens)
		if len(s.chunks) == 0 {
			b.decode()
		}
	} else {
		b.decode()
		b.prefill(b.cfg.StepTokens - s.decodes)
	}
	if len(s.chunks) == 0 && s.decodes == 0 {
		if len(b.running)+b.waiting.len() > 0 {
			panic("BUG: an engine with requests and nothing to do")
		}
		return
	}
	s.busy, s.steps = true, 1
	b.price()
	if b.warm > 0 {
		b.warm--
		s.pace *= b.cfg.WarmUpFactor
	} else if len(s.chunks) == 0 {
		s.steps = b.alike()
	}
	s.end = now
	for i := range s.steps {
		s.end += s.cost(&b.cfg, i)
	}
}

// decode lets all decoding sequences take part in the step, and preempts the last of all as long as they lack memory.
func (b *batching) decode() {
	d := &b.decoders
	need := d.blocks(d.round, d.round+1)
	for need > b.mem.room() {
		b.preempt()
		need = d.blocks(d.round, d.round+1)
	}
	b.mem.take(need)
	b.now.decodes = len(d.turns)
	b.now.context = d.context + len(d.turns)
}

// preempt sends the job that came last back to the queue. It cannot be back before others have freed memory: it needs at least what it
// gave, and a part of that is taken.
func (b *batching) preempt() {
	last := len(b.running) - 1
	j := b.running[last]
	b.running = b.running[:last]
	b.decoders.leave(j)
	b.mem.release(j)
	j.target = j.PromptTokens + j.generated
	j.admitted = false
	b.waiting.pushFront(j)
	b.preemptions++
	b.events = append(b.events, j.event(Preempted, b.now.start))
}

// prefill puts prompts into the step, in order of arrival: those in progress, then those that can be admitted.
func (b *batching) prefill(budget int) {
	for _, j := range b.computing() {
		if budget > 0 {
			budget -= b.compute(j, budget)
		}
	}
	for i := 0; budget > 0 && i < b.waiting.len() && len(b.running) < b.cfg.maxSequences(); {
		j := b.waiting.at(i)
		if !b.fits(j) {
			i++
			continue
		}
		if !b.mem.admit(j, len(b.running) == 0) {
			return
		}
		if i == 0 {
			b.waiting.pop()
		} else {
			b.waiting.remove(j)
		}
		b.adapt(j)
		b.running = append(b.running, j)
		j.admitted = true
		if !j.counted {
			j.kv = max(j.kv, min(j.Found, j.target-1))
			j.counted, j.cached = true, j.kv
			b.prompts += uint64(j.PromptTokens)
			b.hits += uint64(j.kv)
		}
		budget -= b.compute(j, budget)
	}
}

// computing returns those that run and whose prompts are not computed. They came last: nothing is admitted before all of its
// predecessors' prompts are in steps.
func (b *batching) computing() []*job {
	i := len(b.running)
	for i > 0 && !b.running[i-1].decoding() {
		i--
	}
	return b.running[i:]
}

// compute puts a chunk of j's prompt into the step, and returns its tokens.
func (b *batching) compute(j *job, budget int) int {
	n := min(budget, j.target-j.kv)
	b.now.chunks = append(b.now.chunks, chunk{j, n})
	return n
}

// price says what the planned step costs, but for decoding.
func (b *batching) price() {
	s := &b.now
	t := &b.cfg.Timing
	tokens := s.decodes
	for _, c := range s.chunks {
		s.fixed += t.chunk(c.n, c.kv)
		tokens += c.n
	}
	if len(s.chunks) > 0 {
		s.fixed += t.Prefill
	}
	s.fixed += float64(s.loads) * b.cfg.AdapterLoad.Seconds()
	s.fixed += b.cfg.base(tokens)
}

// alike returns how many steps from here on will do the same: until a sequence finishes, or memory may run out. What
// waits cannot be admitted before: it could not be now, and decoding only takes memory.
func (b *batching) alike() int {
	d := &b.decoders
	n := min(b.cfg.span, d.left())
	for n > 1 && d.blocks(d.round+1, d.round+n) > b.mem.room() {
		n /= 2
	}
	return n
}

func (b *batching) load(now time.Duration) Load {
	b.settle(now)
	l := Load{
		Running: len(b.running), Waiting: b.waiting.len(), Blocks: b.cfg.Blocks,
		ContextTokens: b.decoders.context, WaitingTokens: b.waiting.tokens,
		PromptTokens: b.prompts, CachedTokens: b.hits, Preemptions: b.preemptions, AdapterLoads: b.loads,
	}
	l.Used, l.Cached = b.mem.usage()
	for _, j := range b.computing() {
		l.ContextTokens += j.kv
		l.WaitingTokens += j.target - j.kv
	}
	return l
}
