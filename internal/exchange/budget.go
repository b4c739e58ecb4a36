package exchange

import (
	"math"
	"sync"
)

// Budget bounds how much further attempts may add to the load: each first attempt earns a part of one, each
// retry, failover, fallback or hedge takes one. It starts full, so a single fault is always met. Hedges, for which
// nothing need have failed, must also have earned their own share, which starts with nothing. Safe for concurrent use.
type Budget struct {
	mu       sync.Mutex
	ratio    int64 // parts per first attempt
	smallest int64 // parts
	parts    int64 // what may be spent
	inFlight int64

	hedgeRatio int64 // parts per first attempt
	hedgeParts int64 // what hedges may spend; they spend of parts too
}

// part is the grain in which retries are counted: sums of decimal ratios stay exact.
const part = 1_000_000

// mostBudget bounds what a budget holds if nothing is in flight, so that it can be counted.
const mostBudget = 1e9

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
	b.ratio, b.smallest = int64(math.Round(ratio*part)), int64(math.Round(min(smallest, mostBudget)*part))
	b.parts = min(b.parts, b.most())
}

// Hedges sets what each first attempt earns for hedges; 0 allows none.
func (b *Budget) Hedges(ratio float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hedgeRatio = int64(math.Round(ratio * part)); b.hedgeRatio == 0 {
		b.hedgeParts = 0
	}
}

func (b *Budget) most() int64 { return max(b.smallest, b.inFlight*part) }

// begin counts a request in.
func (b *Budget) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight++
}

// earn takes in what the first attempt of a request earns.
func (b *Budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts = min(b.parts+b.ratio, b.most())
	b.hedgeParts = min(b.hedgeParts+b.hedgeRatio, b.most())
}

func (b *Budget) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight--; b.inFlight < 0 {
		panic("BUG: exchange: more requests ended than began")
	}
	b.parts, b.hedgeParts = min(b.parts, b.most()), min(b.hedgeParts, b.most())
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

func (b *Budget) takeHedge() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parts < part || b.hedgeParts < part {
		return false
	}
	b.parts -= part
	b.hedgeParts -= part
	return true
}

func (b *Budget) refundHedge() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts, b.hedgeParts = min(b.parts+part, b.most()), min(b.hedgeParts+part, b.most())
}
