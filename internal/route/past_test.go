package route

import (
	"math"
	"slices"
	"testing"
	"time"
)

// said is a conversation of one prompt of blocks of 400 bytes, after turns that were others.
func said(opening, end uint64, text int, past ...Turn) Turns {
	t := Turns{Opening: opening, End: end, Text: text}
	copy(t.Past[:], past)
	return t
}

// say asks for a prompt of a conversation; of a token is 4 bytes.
func (k *talk) say(chain []uint64, turns Turns) *Lease {
	k.t.Helper()
	k.seed++
	k.now = k.now.Add(time.Minute)
	k.r.pools["m"].stats.bytesPerToken = mean{4, 100}
	return mustPick(k.t, k.r, k.now, Query{Model: "m", Facts: &Facts{
		Model: "m", Seed: k.seed, Stream: true, PromptBytes: turns.Text, Prefix: chain, PrefixBytes: 400, Turns: turns, MaxOutput: 50,
	}})
}

// cached is what each deployment is thought to hold of a lease's prompt, in tokens.
func cached(l *Lease) map[string]int {
	found := map[string]int{}
	for _, c := range l.Decision().Candidates {
		found[c.ID] = c.Forecast.Cached
	}
	return found
}

// TestTurnBefore: whoever served the turn before has all of its prompt, to the byte, and a part of the answer that stands there now; nobody
// else has more than the blocks that are the same.
func TestTurnBefore(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	first := k.say(chain(1, 3, 3), said(7, 70, 3*400+200))
	home := first.Deployment().ID
	k.answer(first, 0.1, 350, 0)
	before := Turn{Hash: 70, Blocks: 3, Rest: 200, Answer: 240}
	f := func(what string, turns Turns, want int) {
		t.Helper()
		l := k.say(append(chain(1, 3, 3), k.seed, k.seed+1000), turns)
		got := cached(l)
		for id, n := range got {
			if id == home && n != want || id != home && n != 0 {
				t.Errorf("%s: %v, want %d at %s", what, got, want, home)
			}
		}
		l.Done(k.now, Outcome{Class: "client_gone"})
		k.r.pools["m"].stats.ends = sessions{} // as if that had not been
		k.r.pools["m"].stats.ends.served(70, k.r.nodes[first.dep.key()], 1)
	}
	f("half of the answer, before anything is known of answers", said(7, 71, 2400, before), 350+60/2)
	f("a conversation that begins alike", said(8, 81, 2400), 300)
	f("the turn before went elsewhere, the one before that here", said(7, 72, 2400, Turn{Hash: 90, Blocks: 4}, before), 350+60/2)
	k.r.pools["m"].stats.outlook.answers = mean{1, 10}
	f("all of the answer", said(7, 71, 2400, before), 350+60)
	f("an answer longer than the prompt", said(7, 71, 1401, before), 350)
	k.r.index.Drop(first.node.memory.holder)
	k.r.pools["m"].stats.outlook.guesses = mean{0, 10}
	f("its blocks have been pushed out", said(7, 71, 2400, before), 0)
}

// TestAnswersOfOtherConversations: prompts end at the same block, and one of them goes on: its answer is there, and not that of the others.
func TestAnswersOfOtherConversations(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}))
	for end := range uint64(3) {
		l := k.say(chain(1, 3, 3), said(end+1, 70+end, 3*400+100))
		k.answer(l, 0.1, 325, int(l.charge.blocks))
	}
	l := k.say(chain(1, 3, 4), said(2, 80, 1800, Turn{Hash: 71, Blocks: 3, Rest: 100, Answer: 40}))
	if got := chosen(l).Forecast.Cached; got != 300+25+5 {
		t.Errorf("the one in the middle: %d tokens, want 330", got)
	}
	l = k.say(append(chain(1, 3, 3), 5), said(9, 90, 1800))
	if got := chosen(l).Forecast.Cached; got != 300 {
		t.Errorf("a new one: %d tokens, want 300", got)
	}
}

// TestStrangersAreGuessed: of a conversation that came through other balancers, one deployment may have the turn before, the same at all
// balancers. What engines find says how far that is true.
func TestStrangersAreGuessed(t *testing.T) {
	names := []Deployment{dep("a/m", Limits{}), dep("b/m", Limits{}), dep("c/m", Limits{}), dep("d/m", Limits{})}
	k := newTalk(t, names...)
	slices.Reverse(names)
	other := newTalk(t, names...)
	homes := map[string]int{}
	for opening := range uint64(40) {
		id := opening*0x9e3779b97f4a7c15 + 1
		turns := said(id, id+1, 4000, Turn{Hash: id + 2, Blocks: 8, Rest: 0, Answer: 400})
		l := k.say(chain(int(opening)+1, 10, 10), turns)
		where, tokens := "", 0
		for id, n := range cached(l) {
			if n > 0 {
				if where != "" {
					t.Fatalf("guessed at %s and %s", where, id)
				}
				where, tokens = id, n
			}
		}
		if where == "" || l.Deployment().ID != where {
			t.Fatalf("guessed at %q, chosen %s", where, l.Deployment().ID)
		}
		if opening == 0 && tokens != int(guessPrior*900) {
			t.Errorf("%d tokens of 900 are guessed at first", tokens)
		}
		again := other.say(chain(int(opening)+1, 10, 10), turns)
		if guess := other.r.past.guess.unit.key.name; guess != where {
			t.Errorf("another balancer guesses %s, this one %s", guess, where)
		}
		homes[where]++
		k.answer(l, 0.1, 1000, 900)
		other.answer(again, 0.1, 1000, 0)
	}
	if g := k.r.pools["m"].stats.outlook.guesses; g.value < 0.9 {
		t.Errorf("all is found, and %.2f believed", g.value)
	}
	if g := other.r.pools["m"].stats.outlook.guesses; g.value > 0.1 {
		t.Errorf("nothing is found, and %.2f believed", g.value)
	}
	if s := k.r.pools["m"].stats.outlook.of(4).Strangers; s != 1 {
		t.Errorf("%v of the conversations are strangers, all were", s)
	}
	for id, n := range homes {
		if len(homes) != 4 || n < 3 {
			t.Errorf("%d of 40 are guessed at %s", n, id)
		}
	}
	// A turn that was served here is known.
	id := uint64(5)
	k.answer(k.say(chain(99, 10, 10), said(id, id+1, 4000)), 0.1, 1000, 0)
	l := k.say(chain(99, 10, 12), said(id, id+2, 4800, Turn{Hash: id + 1, Blocks: 10, Answer: 400}))
	if l.charge.guess != 0 || k.r.pools["m"].stats.outlook.strangers.value >= 1 {
		t.Errorf("it is known where the turn before was, and %.0f tokens are guessed", l.charge.guess)
	}
	// Who is out cannot be the home: the next in the order is.
	turns := said(77, 78, 4000, Turn{Hash: 79, Blocks: 8})
	home := k.say(chain(55, 10, 10), turns).Deployment().ID
	k.seed++
	l = mustPick(t, k.r, k.now, Query{Model: "m", Facts: &Facts{
		Model: "m", Seed: k.seed, Stream: true, PromptBytes: 4000, PrefixBytes: 400, Turns: said(77, 80, 4000, Turn{Hash: 81, Blocks: 8}), ExcludeNames: []string{home}, MaxOutput: 50,
	}})
	if l.charge.guess == 0 || l.Deployment().ID == home {
		t.Errorf("without %s %.0f tokens are guessed at %s", home, l.charge.guess, l.Deployment().ID)
	}
}

// TestNear: of those who are about as good, a conversation has one order, whatever the order in which they are listed; each is first for its
// part of all conversations by weight, and who is out leaves the others where they were.
func TestNear(t *testing.T) {
	weights := map[string]float64{"a/m": 1, "b/m": 1, "c/m": 2}
	near := func(opening uint64, above float64, ids ...string) string {
		r := NewRound(start, &Facts{}, 0, nil, 0)
		r.Opening = opening
		for _, id := range ids {
			r.Candidates = append(r.Candidates, Candidate{ID: id, Weight: weights[id]})
		}
		for i, id := range ids {
			r.Note(i, "seconds", map[string]float64{"a/m": 1, "b/m": 1.1, "c/m": 1.2}[id])
		}
		return ids[r.Near(slices.Index(ids, "a/m"), above)]
	}
	const n = 20_000
	counts := map[string]int{}
	for i := range uint64(n) {
		opening := i*0x9e3779b97f4a7c15 + 1
		first := near(opening, 0.25, "a/m", "b/m", "c/m")
		counts[first]++
		if again := near(opening, 0.25, "c/m", "a/m", "b/m"); again != first {
			t.Fatalf("%s, listed otherwise %s", first, again)
		}
		if first != "c/m" {
			if again := near(opening, 0.25, "a/m", "b/m"); again != first {
				t.Fatalf("%s, without c/m %s", first, again)
			}
		}
		if got := near(opening, 0.15, "a/m", "b/m", "c/m"); got == "c/m" {
			t.Fatal("c/m is too far away")
		}
	}
	for id, w := range weights {
		if share := float64(counts[id]) / n; math.Abs(share-w/4) > 0.015 {
			t.Errorf("%s is first for %.3f of all, its weight is %v of 4", id, share, w)
		}
	}
	if got := near(0, 1, "a/m", "b/m", "c/m"); got != "a/m" {
		t.Errorf("no conversation goes to %s", got)
	}
}

// TestCommonBeginningsAreNoHome: with little to do, conversations that all begin with one long prompt begin everywhere, and go on where they began;
// prompts that few begin with stay where they are.
func TestCommonBeginningsAreNoHome(t *testing.T) {
	w := newTown(t, 4, Affinity{Mode: PrefixAffinity})
	ask := func(chain []uint64, turns Turns) *Lease {
		w.seed++
		turns.Text = 380 * len(chain)
		return mustPick(t, w.Router, w.now, Query{Model: "m", Facts: &Facts{
			Model: "m", Seed: w.seed, Stream: true, PromptBytes: turns.Text, MaxOutput: 10, Prefix: chain, PrefixBytes: 380, Turns: turns,
		}})
	}
	serve := func(chain []uint64, turns Turns) string {
		l := ask(chain, turns)
		w.now = w.now.Add(time.Second)
		w.answer(l, 100*time.Millisecond)
		return l.Deployment().Endpoint
	}
	talkChain := func(talk uint64, blocks int) []uint64 {
		c := chain(1, 20, 20)
		for i := range blocks {
			c = append(c, talk<<40+uint64(i)+1)
		}
		return c
	}
	counts := map[string]int{}
	for talk := range uint64(80) {
		id := talk*100 + 1
		home := serve(talkChain(talk, 4), said(id, id, 0))
		if talk >= fewAlike {
			counts[home]++
		}
		if again := serve(talkChain(talk, 8), said(id, id+1, 0, Turn{Hash: id, Blocks: 24})); again != home {
			t.Errorf("talk %d began at %s and goes on at %s", talk, home, again)
		}
	}
	for _, e := range []string{"a", "b", "c", "d"} {
		if n := counts[e]; n < 8 {
			t.Errorf("of 80 conversations %v began there", counts)
			break
		}
	}
	// One document in ten conversations is worth a home.
	homes := map[string]int{}
	for i := range uint64(200) {
		id := 1_000_000 + 10*i
		c := []uint64{id}
		if i%10 == 0 {
			c = chain(2, 20, 20)
		}
		l := ask(append(slices.Clone(c), id+1, id+2), said(id, id, 0))
		w.now = w.now.Add(time.Second)
		w.answer(l, 100*time.Millisecond)
		if i%10 == 0 {
			homes[l.Deployment().Endpoint]++
		}
	}
	if len(homes) != 1 {
		t.Errorf("what one in ten begins with is at %v", homes)
	}
}

// TestShortTurnsStay: conversations that fill no block, or none beyond what is common, go on where the turn before was.
func TestShortTurnsStay(t *testing.T) {
	for _, system := range [][]uint64{nil, chain(1, 20, 20)} {
		w := newTown(t, 4, Affinity{Mode: PrefixAffinity})
		serve := func(turns Turns) string {
			w.seed++
			turns.Text += 380 * len(system)
			l := mustPick(t, w.Router, w.now, Query{Model: "m", Facts: &Facts{
				Model: "m", Seed: w.seed, Stream: true, PromptBytes: turns.Text, MaxOutput: 10, Prefix: system, PrefixBytes: 380, Turns: turns,
			}})
			w.now = w.now.Add(time.Second)
			w.answer(l, 100*time.Millisecond)
			return l.Deployment().Endpoint
		}
		for talk := range uint64(60) {
			id := talk*100 + 1
			home := serve(said(id, id, 100))
			again := serve(said(id, id+1, 350, Turn{Hash: id, Blocks: int32(len(system)), Rest: 100, Answer: 150}))
			if talk >= fewAlike && again != home {
				t.Errorf("after %d blocks talk %d began at %s and goes on at %s", len(system), talk, home, again)
			}
		}
	}
}

// fewAlike conversations have to begin before how they do is common.
const fewAlike = 3

// TestCommonBeginningsInForecasts: what a deployment has to compute once for all that follow is told beside the whole.
func TestCommonBeginningsInForecasts(t *testing.T) {
	k := newTalk(t, dep("a/m", Limits{}), dep("b/m", Limits{}))
	for talk := range uint64(40) {
		c := append(chain(1, 10, 10), talk+1)
		l := k.say(c, said(talk+1, talk+1, 4400))
		for _, x := range l.Decision().Candidates {
			f := x.Forecast
			switch {
			case talk < fewAlike && f.Common != 0:
				t.Fatalf("talk %d: %v s are common of too few", talk, f.Common)
			case talk >= fewAlike && f.Cached == 0 && !(f.Common > f.Prefill/2 && f.Common < f.Prefill):
				t.Fatalf("talk %d: %s has nothing of it, %v s of %v are common", talk, x.ID, f.Common, f.Prefill)
			case talk >= fewAlike && f.Cached >= 1000 && f.Common != 0:
				t.Fatalf("talk %d: %s has it, and %v s are common", talk, x.ID, f.Common)
			}
		}
		k.answer(l, 0.2, 1100, chosen(l).Forecast.Cached)
	}
}
