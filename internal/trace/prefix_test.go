package trace

import (
	"math/rand/v2"
	"slices"
	"testing"

	"evenkeel/internal/llm"
)

func TestMaxBlocks(t *testing.T) {
	if MaxBlocks != llm.MaxPrefixBlocks {
		t.Errorf("MaxBlocks is %d, prompts have chains of up to %d", MaxBlocks, llm.MaxPrefixBlocks)
	}
}

func TestPoints(t *testing.T) {
	f := func(known, blocks int, want ...int) {
		t.Helper()
		if got := points(nil, known, blocks); !slices.Equal(got, want) {
			t.Errorf("points(%d, %d) = %v, want %v", known, blocks, got, want)
		}
	}
	f(0, 0)
	f(0, 1, 1)
	f(0, 17, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)
	f(16, 31, 16, 18, 20, 22, 24, 26, 28, 30, 31)
	f(33, 33, 33)
	f(33, 45, 33, 36, 40, 44, 45)
	f(2000, 2300, 2000, 2048, 2300)
	f(4095, 4096, 4095, 4096)
	if n := len(points(nil, 0, MaxBlocks)); n != 80 {
		t.Errorf("the longest chain has %d hashes", n)
	}
	if n := len(points(nil, 0, MaxBlocks-1)); n != 80 {
		t.Errorf("the longest chain but one has %d hashes", n)
	}
}

// forest brings chains that begin as others do, as prompts of conversations with a few system prompts.
type forest struct {
	rng    *rand.Rand
	chains [][]uint64
}

// next returns a chain that goes on from an earlier one, at its end or amid it, or begins anew.
func (f *forest) next() []uint64 {
	var chain []uint64
	if n := len(f.chains); n > 0 && f.rng.IntN(8) > 0 {
		from := f.chains[max(0, n-1-f.rng.IntN(40))]
		keep := len(from)
		if f.rng.IntN(2) == 0 {
			keep = f.rng.IntN(len(from) + 1)
		}
		chain = slices.Clone(from[:keep])
	}
	for range f.rng.IntN(1 << f.rng.IntN(9)) {
		chain = append(chain, f.rng.Uint64())
	}
	chain = chain[:min(len(chain), MaxBlocks)]
	f.chains = append(f.chains, chain)
	return chain
}

func common(a, b []uint64) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// read returns the chains as a reader of the thinned ones has them.
func read(chains [][]uint64, room int) (got [][]uint64, hashes int) {
	thinner, all := NewThinner(room), NewChains()
	for _, chain := range chains {
		var p Prefix
		thinner.Thin(chain, &p)
		hashes += len(p.Hashes)
		for i := range p.Hashes {
			p.Hashes[i] >>= 64 - HashBits
		}
		got = append(got, all.Of("key", &p).Append(nil))
	}
	return got, hashes
}

// nearest is the most blocks that a chain has in common with one of others.
func nearest(others [][]uint64, chain []uint64) (most int) {
	for _, o := range others {
		most = max(most, common(o, chain))
	}
	return most
}

func TestThinnedChainsShareWhatTheySharedBefore(t *testing.T) {
	for seed := range uint64(20) {
		f := &forest{rng: rand.New(rand.NewPCG(seed, 1))}
		for range 150 {
			f.next()
		}
		got, _ := read(f.chains, 1<<20)
		for i := range got {
			if len(got[i]) != len(f.chains[i]) {
				t.Fatalf("seed %d: chain %d has %d blocks, want %d", seed, i, len(got[i]), len(f.chains[i]))
			}
			for j := range i { // the earlier one
				want, have := common(f.chains[i], f.chains[j]), common(got[i], got[j])
				switch {
				case have > want:
					t.Fatalf("seed %d: chains %d and %d share %d blocks, and are read as if %d", seed, j, i, want, have)
				case have == want:
				case want <= 16 || want == len(f.chains[j]) && nearest(f.chains[:i], f.chains[i]) == want || have*8 < want*7:
					t.Fatalf("seed %d: chains %d (of %d) and %d (of %d) share %d blocks, and are read as if %d", seed, j, len(f.chains[j]), i, len(f.chains[i]), want, have)
				}
			}
		}
	}
}

// What was forgotten is told again: nothing is shared that was not, and what was told again is shared from then on.
func TestThinnerForgets(t *testing.T) {
	f := &forest{rng: rand.New(rand.NewPCG(7, 1))}
	for range 300 {
		f.next()
	}
	_, all := read(f.chains, 1<<20)
	got, few := read(f.chains, 50)
	if few <= all {
		t.Errorf("%d hashes with little memory, %d with much", few, all)
	}
	for i := range got {
		for j := range i {
			want, have := common(f.chains[i], f.chains[j]), common(got[i], got[j])
			if have > want || have*8 < want*7 && want > 16 {
				t.Fatalf("chains %d and %d share %d blocks, and are read as if %d", j, i, want, have)
			}
		}
	}
	thinner := NewThinner(50)
	for _, chain := range f.chains {
		var p Prefix
		thinner.Thin(chain, &p)
		if n := len(thinner.written.young) + len(thinner.written.old); n > 100 {
			t.Fatalf("it remembers %d hashes", n)
		}
	}
	thinner.Reset()
	var p Prefix
	if thinner.Thin(f.chains[len(f.chains)-1], &p); p.Known != 0 {
		t.Errorf("after Reset it knows %d blocks", p.Known)
	}
}

// Two processes with one key may write to one file, each of what it knows itself; other keys have nothing in common.
func TestChainsOfSeveralWriters(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	long := make([]uint64, 100)
	for i := range long {
		long[i] = rng.Uint64() >> (64 - HashBits)
	}
	all := NewChains()
	a, b := NewThinner(1000), NewThinner(1000)
	tell := func(t *Thinner, key string, n int) []uint64 {
		var p Prefix
		t.Thin(long[:n], &p)
		return all.Of(key, &p).Append(nil)
	}
	first, second, third := tell(a, "k", 41), tell(a, "k", 70), tell(b, "k", 100)
	if n := common(first, second); n != 41 {
		t.Errorf("the second turn shares %d blocks with the first one, want 41", n)
	}
	if n := common(second, third); n != 64 {
		t.Errorf("the turn at the other writer shares %d blocks, want 64", n)
	}
	other := NewThinner(1000)
	if n := common(third, tell(other, "l", 100)); n != 0 {
		t.Errorf("chains under another key share %d blocks", n)
	}
}

func TestThinAllocs(t *testing.T) {
	f := &forest{rng: rand.New(rand.NewPCG(7, 1))}
	for range 100 {
		f.next()
	}
	thinner := NewThinner(500)
	var p Prefix
	thin := func() {
		for _, chain := range f.chains {
			thinner.Thin(chain, &p)
		}
	}
	thin()
	thin()
	if n := testing.AllocsPerRun(20, thin); n > 5 {
		t.Errorf("%v allocations for 100 chains", n)
	}
}
