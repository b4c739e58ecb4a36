package exchange

import "sync"

// Budget bounds how much retries may add to the load: each first attempt earns a part of a retry, each
// retry, failover or fallback takes one. It starts full, so a single fault is always met. Safe for
// concurrent use.
type Budget struct {
	mu       sync.Mutex
	ratio    float64
	smallest float64
	tokens   float64
	inFlight int
}

// NewBudget returns a full budget that gains ratio per first attempt and holds max(smallest, requests in
// flight) retries.
func NewBudget(ratio, smallest float64) *Budget {
	return &Budget{ratio: ratio, smallest: smallest, tokens: smallest}
}

// Configure replaces the settings; what was earned stays, as far as it fits.
func (b *Budget) Configure(ratio, smallest float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ratio, b.smallest = ratio, smallest
	b.tokens = min(b.tokens, b.most())
}

func (b *Budget) most() float64 { return max(b.smallest, float64(b.inFlight)) }

// begin counts a request in. A request that is itself a client's retry earns nothing.
func (b *Budget) begin(earns bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight++
	if earns {
		b.tokens = min(b.tokens+b.ratio, b.most())
	}
}

func (b *Budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight--; b.inFlight < 0 {
		panic("BUG: exchange: more requests ended than began")
	}
	b.tokens = min(b.tokens, b.most())
}

func (b *Budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (b *Budget) refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+1, b.most())
}
