package peers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func matched(x *index, now time.Duration, deployments int, chain ...uint64) []int {
	tokens := make([]int, deployments)
	x.match(now, chain, tokens)
	return tokens
}

// tokens returns how much a deployment's part holds.
func (x *index) tokens(deployment int) int { return x.list(int32(deployment)).len * x.size }

func TestIndexMatches(t *testing.T) {
	x := newIndex(3, indexOptions{block: 64})
	if got := matched(x, 0, 3, 1, 2); !slices.Equal(got, []int{0, 0, 0}) {
		t.Errorf("an empty index that knows no block size: %v", got)
	}
	x.insert(0, []uint64{1, 2}, 0) // before anything is known of blocks
	x.learn(16)                    // four of them are one of 64
	if x.size != 64 || x.step != 4 {
		t.Fatalf("blocks of %d tokens, %d of the workload's", x.size, x.step)
	}
	a := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}
	b := []uint64{1, 2, 3, 4, 50, 60, 70, 80}
	x.insert(1, a, 0)
	x.insert(2, b, 1)
	for _, c := range []struct {
		chain []uint64
		want  []int
	}{
		{a, []int{128, 64, 0}}, // the ninth is no whole block
		{b, []int{64, 128, 0}},
		{a[:7], []int{64, 64, 0}},
		{a[:3], []int{0, 0, 0}},
		{[]uint64{9, 9, 9, 9}, []int{0, 0, 0}},
	} {
		if got := matched(x, 3, 3, c.chain...); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.chain, got, c.want)
		}
	}
	coarse := newIndex(1, indexOptions{block: 64})
	coarse.learn(512)
	if coarse.size != 512 || coarse.step != 1 {
		t.Errorf("a block of the workload is the least: %d tokens, %d of the workload's", coarse.size, coarse.step)
	}
}

func TestIndexLatest(t *testing.T) {
	x := newIndex(3, indexOptions{})
	x.learn(10)
	all := func(int) bool { return true }
	x.insert(1, []uint64{1, 2, 3}, 0)
	x.insert(1, []uint64{1, 2}, 1)
	f := func(among func(int) bool, deployment, tokens int, chain ...uint64) {
		t.Helper()
		if d, n := x.latest(chain, among); d != deployment || n != tokens {
			t.Errorf("%v: deployment %d with %d tokens, want %d with %d", chain, d, n, deployment, tokens)
		}
	}
	f(all, 0, 30, 1, 2, 3, 4)
	f(all, 1, 20, 1, 2, 9) // both have it, and the second was given it last
	x.insert(1, []uint64{1, 2, 3}, 0)
	f(all, 0, 20, 1, 2, 9)
	f(func(d int) bool { return d != 0 }, 1, 20, 1, 2, 3)
	f(all, -1, 0, 7)
	f(all, -1, 0)
}

func TestIndexForgets(t *testing.T) {
	x := newIndex(2, indexOptions{room: 30})
	x.learn(10)
	x.insert(0, []uint64{1, 2, 3}, 0)
	x.insert(1, []uint64{7, 8}, 1)
	x.insert(2, []uint64{1, 9}, 0) // its last block is the oldest, its head was used
	if got := matched(x, 2, 2, 1, 2, 3); !slices.Equal(got, []int{20, 0}) {
		t.Errorf("a prefix must lose its end first: %v", got)
	}
	if got := matched(x, 2, 2, 7, 8); !slices.Equal(got, []int{0, 20}) {
		t.Errorf("each deployment has room of its own: %v", got)
	}

	pooled := newIndex(2, indexOptions{room: 30, pooled: true})
	pooled.learn(10)
	pooled.insert(0, []uint64{1, 2}, 0)
	pooled.insert(1, []uint64{7, 8}, 1)
	if got := append(matched(pooled, 1, 2, 1, 2), matched(pooled, 1, 2, 7, 8)...); !slices.Equal(got, []int{10, 0, 0, 20}) {
		t.Errorf("pooled room: %v", got)
	}

	late := newIndex(1, indexOptions{room: 10, every: time.Minute})
	late.learn(10)
	late.insert(time.Second, []uint64{1, 2, 3}, 0)
	if n := late.tokens(0); n != 30 {
		t.Errorf("%d tokens before it is looked through, want 30", n)
	}
	late.insert(time.Minute, []uint64{1}, 0)
	if n := late.tokens(0); n != 10 {
		t.Errorf("%d tokens after a minute, want 10", n)
	}

	idle := newIndex(1, indexOptions{idle: time.Minute})
	idle.learn(10)
	idle.insert(0, []uint64{1, 2}, 0)
	if got := matched(idle, time.Minute, 1, 1, 2); got[0] != 20 {
		t.Errorf("after a minute: %v", got)
	}
	if got := matched(idle, time.Minute+1, 1, 1, 2); got[0] != 0 {
		t.Errorf("after more than a minute: %v", got)
	}
	idle.insert(2*time.Minute, []uint64{5}, 0)
	if n := idle.tokens(0); n != 10 {
		t.Errorf("%d tokens, want the 10 that were used", n)
	}

	wide := newIndex(130, indexOptions{room: 20}) // sets of three words
	wide.learn(10)
	for d := range 130 {
		wide.insert(0, []uint64{1, 2 + uint64(d)%2}, d)
	}
	wide.insert(1, []uint64{1, 2, 3}, 129)
	got := matched(wide, 1, 130, 1, 2, 3)
	for d, n := range got {
		if want := 20 - 10*(d%2); d != 129 && n != want || d == 129 && n != 20 {
			t.Errorf("deployment %d of 130: %d tokens", d, n)
		}
	}
	if d, n := wide.latest([]uint64{1, 2}, func(int) bool { return true }); d != 129 || n != 20 {
		t.Errorf("the last of 130: %d with %d tokens", d, n)
	}
}

// TestIndexHashZero: traces number their blocks from 0, and a place that is free must not be taken for that one.
func TestIndexHashZero(t *testing.T) {
	x := newIndex(1, indexOptions{room: 20})
	x.learn(10)
	x.insert(0, []uint64{5, 6}, 0)
	x.insert(0, []uint64{7, 8}, 0) // 5 and 6 are forgotten
	x.insert(0, []uint64{5, 0}, 0)
	if got := matched(x, 0, 1, 5, 0); got[0] != 20 || x.tokens(0) != 20 {
		t.Errorf("%v of 20 tokens, %d in all", got, x.tokens(0))
	}
}

// TestIndexAgainstLists: the index says what a plain list of what was used says, whatever comes.
func TestIndexAgainstLists(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const deployments, room = 3, 12
	x := newIndex(deployments, indexOptions{room: room * 10})
	x.learn(10)
	var lists [deployments][]uint64 // the newest last
	chain := func() []uint64 {
		var c []uint64
		h := uint64(1)
		for range 1 + rng.IntN(5) {
			h = h*7 + uint64(rng.IntN(2))
			c = append(c, h)
		}
		return c
	}
	for range 5000 {
		c, d := chain(), rng.IntN(deployments)
		x.insert(0, c, d)
		for _, h := range slices.Backward(c) {
			lists[d] = append(slices.DeleteFunc(lists[d], func(o uint64) bool { return o == h }), h)
		}
		lists[d] = lists[d][max(0, len(lists[d])-room):]
		c = chain()
		got := matched(x, 0, deployments, c...)
		for d := range deployments {
			want := 0
			for want < len(c) && slices.Contains(lists[d], c[want]) {
				want++
			}
			if got[d] != 10*want || x.tokens(d) != 10*len(lists[d]) {
				t.Fatalf("deployment %d has %d tokens of %v and %d in all, want %d and %d", d, got[d], c, x.tokens(d), 10*want, 10*len(lists[d]))
			}
		}
	}
	if n := len(x.entries) - 1 - len(x.unused); n > deployments*room || n != len(x.where) || len(x.sets) > n || len(x.holders)-len(x.unusedSets) != len(x.sets) {
		t.Errorf("%d entries in use, %d found and %d sets, want at most %d", n, len(x.where), len(x.sets), deployments*room)
	}
}

func TestRing(t *testing.T) {
	ids := []string{"a", "b", "c", "d"}
	r := newRing(ids, 256, "")
	count := make([]int, 4)
	moved := 0
	without := newRing(ids[:3], 256, "")
	all := func(int) bool { return true }
	for key := range uint64(4000) {
		d := r.walk(scramble(key), 4, all)
		count[d]++
		if o := without.walk(scramble(key), 3, all); d != 3 && o != d {
			moved++
		}
		var order []int
		if r.walk(scramble(key), 4, func(d int) bool { order = append(order, d); return false }) != -1 || len(order) != 4 {
			t.Fatalf("who refuses all sees %v, want each once", order)
		}
		if order[0] != d {
			t.Fatalf("the walk begins at %d, not at %d", order[0], d)
		}
	}
	for d, n := range count {
		if n < 700 || n > 1300 {
			t.Errorf("deployment %d has %d of 4000 keys: %v", d, n, count)
		}
	}
	if moved != 0 {
		t.Errorf("%d keys moved between those that stayed", moved)
	}
}
