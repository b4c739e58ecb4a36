package exchange

import (
	"math"
	"sync"
)

// Budget bounds how much retries may add to the load: each first attempt earns a part of a retry, each
// retry, failover or fallback takes one. It starts full, so a single fault is always met. Safe for
// concurrent use.
type Budget struct {
	mu       sync.Mutex
	ratio    int64 // parts per first attempt
	smallest int64 // parts
	parts    int64 // what may be spent
	inFlight int64
}

// part is the grain in which retries are counted: sums of decimal ratios stay exact.
const part = 1_000_000

// NewBudget returns a full budget that gains ratio per first attempt and holds max(smallest, requests in
// flight) retries.
func NewBudget(ratio, smallest float64) *Budget {
	b := &Budget{}
	b.Configure(ratio, smallest)
	b.parts = b.smallest
	return b
}

// Configure replaces the settings; what was earned stays, as far as it fits.
func (b *Budget) Configure(ratio, smallest float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ratio, b.smallest = int64(math.Round(ratio*part)), int64(math.Round(smallest*part))
	b.parts = min(b.parts, b.most())
}

func (b *Budget) most() int64 { return max(b.smallest, b.inFlight*part) }

// begin counts a request in. A request that is itself a client's retry earns nothing.
func (b *Budget) begin(earns bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight++
	if earns {
		b.parts = min(b.parts+b.ratio, b.most())
	}
}

func (b *Budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight--; b.inFlight < 0 {
		panic("BUG: exchange: more requests ended than began")
	}
	b.parts = min(b.parts, b.most())
}

func (b *Budget) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parts < part {
		return false
	}
	b.parts -= part
	return true
}

func (b *Budget) refund() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts = min(b.parts+part, b.most())
}
