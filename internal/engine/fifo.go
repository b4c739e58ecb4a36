package engine

import (
	"container/heap"
	"slices"
	"time"
)

// fifo computes one prompt at a time, in order of arrival. The cache is a plain LRU of blocks that running sequences do not
// pin; what was found in it costs nothing. Decoding is paced by the share of the cache that the decoding sequences had when a sequence
// began to decode, and slows nothing.
type fifo struct {
	cfg   Config
	cache *blockCache
	jobs
	waiting queue

	now      *job          // its prompt is computed
	end      time.Duration // when that ends
	loading  bool          // the engine loads, until end
	loaded   bool
	decoding ends
	context  int // tokens of what decodes
	pace     float64
	warm     int

	prompts, hits uint64
	events        []Event
}

// stream is a sequence that decodes.
type stream struct {
	*job
	next time.Duration // its next event
}

// ends is a heap of streams by their next event.
type ends []stream

func (h ends) Len() int           { return len(h) }
func (h ends) Less(a, b int) bool { return h[a].next < h[b].next }
func (h ends) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *ends) Push(x any)        { *h = append(*h, x.(stream)) }
func (h *ends) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = stream{}
	*h = (*h)[:len(*h)-1]
	return last
}

func newFIFO(c Config) *fifo {
	return &fifo{cfg: c, cache: newBlockCache(c), jobs: newJobs(), pace: 1, warm: c.WarmUpSteps}
}

func (f *fifo) next() (time.Duration, bool) {
	computing := f.now != nil || f.loading
	switch {
	case len(f.decoding) == 0:
		return f.end, computing
	case computing:
		return min(f.end, f.decoding[0].next), true
	}
	return f.decoding[0].next, true
}

func (f *fifo) submit(now time.Duration, s Sequence) {
	f.waiting.push(f.add(f, s))
	if !f.loaded && f.cfg.Load > 0 {
		f.loading, f.end = true, now+f.cfg.Load
	}
	f.loaded = true
	f.begin(now)
}

// cancel lets a prompt in progress be computed to its end; all else ends at once.
func (f *fifo) cancel(_ time.Duration, j *job) {
	switch {
	case j == f.now:
		return
	case j.generated > 0:
		i := slices.IndexFunc(f.decoding, func(s stream) bool { return s.job == j })
		heap.Remove(&f.decoding, i)
		f.context -= j.PromptTokens
	default:
		f.waiting.remove(j)
	}
	f.remove(j)
}

func (f *fifo) slow(_ time.Duration, factor float64) { f.pace = factor }

// begin starts on the next prompt if none is computed.
func (f *fifo) begin(now time.Duration) {
	if f.loading || f.now != nil || f.waiting.len() == 0 {
		return
	}
	j := f.waiting.first()
	f.waiting.pop()
	f.now = j
	j.cached = max(f.cache.match(j).blocks*f.cfg.BlockTokens, min(j.Found, j.PromptTokens-1))
	f.prompts += uint64(j.PromptTokens)
	f.hits += uint64(j.cached)
	t := &f.cfg.Timing
	pace := f.pace
	if f.warm > 0 {
		f.warm--
		pace *= f.cfg.WarmUpFactor
	}
	f.end = now + duration((t.Base+t.Prefill+t.chunk(j.PromptTokens-j.cached, 0))*pace)
}

func (f *fifo) step(now time.Duration) []Event {
	f.events = f.events[:0]
	for len(f.decoding) > 0 && f.decoding[0].next <= now {
		f.token()
	}
	if f.end <= now && f.loading {
		f.loading = false
	} else if f.end <= now && f.now != nil {
		f.first(now)
	}
	f.begin(now)
	return f.events
}

// first ends the prompt in progress.
func (f *fifo) first(now time.Duration) {
	j := f.now
	f.now = nil
	j.kv = j.PromptTokens
	f.cache.keep(j)
	if j.cancelled {
		f.remove(j)
		return
	}
	j.generated = 1
	f.events = j.tell(f.events, now)
	if j.left() == 0 {
		f.remove(j)
		return
	}
	f.context += j.PromptTokens
	t := &f.cfg.Timing
	every := duration((t.Base + t.decode(1, f.context, f.cfg.Blocks*f.cfg.BlockTokens)) * f.pace)
	j.last, j.every = now, every
	s := stream{job: j}
	s.plan()
	heap.Push(&f.decoding, s)
}

// plan sets the time of the stream's next event.
func (s *stream) plan() {
	n := s.left()
	if s.EachToken {
		n = 1
	}
	s.next = s.last + time.Duration(n)*s.every
}

// token gives the stream that is due its token, or all up to the last.
func (f *fifo) token() {
	s := &f.decoding[0]
	s.generated += int((s.next - s.last) / s.every)
	s.last = s.next
	f.events = s.tell(f.events, s.last)
	if s.left() > 0 {
		s.plan()
		heap.Fix(&f.decoding, 0)
		return
	}
	j := s.job
	heap.Pop(&f.decoding)
	f.context -= j.PromptTokens
	j.kv = j.PromptTokens + j.OutputTokens - 1
	f.cache.keep(j)
	f.remove(j)
}

func (f *fifo) load(now time.Duration) Load {
	l := Load{
		Running: len(f.decoding), Waiting: f.waiting.len(), WaitingTokens: f.waiting.tokens, Blocks: f.cfg.Blocks,
		PromptTokens: f.prompts, CachedTokens: f.hits,
	}
	if f.now != nil { // whoever reads the length of the queue sees how much prompts are behind
		l.Waiting++
		l.WaitingTokens += f.now.PromptTokens - f.now.cached
	}
	for _, s := range f.decoding {
		l.ContextTokens += s.PromptTokens + f.generated(s.job, now) - 1
	}
	l.Used = min(l.Blocks, (l.ContextTokens+f.cfg.BlockTokens-1)/f.cfg.BlockTokens)
	l.Cached = min(f.cache.cached, l.Blocks-l.Used)
	return l
}
