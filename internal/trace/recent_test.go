package trace

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRecent(t *testing.T) {
	var gone []int
	r := NewRecent[string](2, func(v int) { gone = append(gone, v) })
	has := func(want ...string) {
		t.Helper()
		var got []string
		for _, m := range []map[string]int{r.young, r.old} {
			for key := range m {
				got = append(got, key)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("it holds %q, want %q", got, want)
		}
	}
	r.Put("a", 1)
	r.Put("b", 2)
	r.Put("c", 3)
	r.Put("d", 4)
	has("a", "b", "c", "d")
	if v, ok := r.Get("a"); !ok || v != 1 { // and so it stays
		t.Errorf("a is %d, %v", v, ok)
	}
	has("a", "c", "d")
	r.Put("a", 10)
	r.Put("e", 5)
	has("a", "c", "d", "e")
	if _, ok := r.Get("b"); ok || !slices.Equal(gone, []int{2}) {
		t.Errorf("b is there: %v; gone are %v", ok, gone)
	}
	if v, _ := r.Get("a"); v != 10 {
		t.Errorf("a is %d", v)
	}
	r.Forget()
	has()
	if slices.Sort(gone); !slices.Equal(gone, []int{2, 3, 4, 5, 10}) {
		t.Errorf("gone are %v", gone)
	}
}

// What was used among the last room keys is there, and there are never more than twice as many.
func TestRecentHoldsWhatWasUsed(t *testing.T) {
	const room = 20
	rng := rand.New(rand.NewPCG(1, 1))
	lost := map[int]int{}
	r := NewRecent[int](room, func(v int) { lost[v]++ })
	var used []int // last one last
	for range 20_000 {
		key := rng.IntN(100)
		i := slices.Index(used, key)
		recent := i >= 0 && i >= len(used)-room
		if v, ok := r.Get(key); recent && !ok || ok && v != key {
			t.Fatalf("%d is %d, %v; used last are %v", key, v, ok, used)
		} else if !ok {
			r.Put(key, key)
		}
		if i >= 0 {
			used = slices.Delete(used, i, i+1)
		}
		used = append(used, key)
		if n := len(r.young) + len(r.old); n > 2*room {
			t.Fatalf("it holds %d", n)
		}
	}
	if len(lost) == 0 {
		t.Error("nothing was forgotten")
	}
}

// A reader with little memory shares nothing that was not shared, and what goes on from a prompt of late as much as one with all.
func TestChainsForget(t *testing.T) {
	f := &forest{rng: rand.New(rand.NewPCG(7, 1))}
	thinner, all, few := NewThinner(20), NewChains(), newChains(200)
	var whole, forgetful [][]uint64
	for range 400 {
		chain := f.next()
		var p Prefix
		thinner.Thin(chain, &p)
		for i := range p.Hashes {
			p.Hashes[i] >>= 64 - HashBits
		}
		whole, forgetful = append(whole, all.Of("k", &p).Append(nil)), append(forgetful, few.Of("k", &p).Append(nil))
		if n := len(few.known.young) + len(few.known.old); n > 400 {
			t.Fatalf("it remembers %d", n)
		}
		last := len(whole) - 1
		for j := range last {
			if a, b := common(whole[last], whole[j]), common(forgetful[last], forgetful[j]); b > a {
				t.Fatalf("chains %d and %d share %d blocks, and with little memory %d", j, last, a, b)
			}
		}
	}
	if len(all.known.young) < 500 {
		t.Errorf("only %d names: nothing was forgotten", len(all.known.young))
	}
}
