package route

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The Router against a simple model: random operations, after each of which everything that the Router
// counts is summed up anew from the leases that are out, and who may be served is worked out naively.

// world is a Router with all that was asked of it.
type world struct {
	t       testing.TB
	source  source
	r       *Router
	now     time.Time
	specs   []PoolSpec
	leases  []*modelLease
	waiters []*modelWaiter
	log     []func() string // formatted only when something fails

	decisions []*Decision
}

// source yields choices: random ones, or a fuzzer's bytes until they end.
type source func(n int) (choice int, more bool)

func fromSeed(seed uint64, steps int) source {
	rng := rand.New(rand.NewPCG(seed, 1))
	return func(n int) (int, bool) { steps--; return rng.IntN(n), steps >= 0 }
}

func fromBytes(b []byte) source {
	return func(n int) (int, bool) {
		if len(b) == 0 {
			return 0, false
		}
		c := int(b[0]) % n
		b = b[1:]
		return c, true
	}
}

type modelLease struct {
	*Lease
	units                              []key
	prompt, expected, produced, tokens int // as the Router should count them
	work                               int
	folded                             time.Time
}

type modelWaiter struct {
	*Ticket
	query Query
	wakes int
}

func (w *world) choose(n int) int { c, _ := w.source(n); return c }

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log[max(0, len(w.log)-25):] {
		w.t.Log(line())
	}
	w.t.Fatalf(format, args...)
}

func (w *world) say(format string, args ...any) {
	w.log = append(w.log, func() string { return fmt.Sprintf(format, args...) })
}

func (w *world) run() {
	w.r = New(Options{MaxWaiting: 8, Health: Health{TripAfter: 3, ResetAfter: 3 * time.Second, PanicThreshold: 0.4 * float64(w.choose(2))}})
	w.adopt()
	for {
		op, more := w.source(19)
		if !more {
			break
		}
		w.now = w.now.Add(time.Duration(w.choose(8)*w.choose(8)) * 31 * time.Millisecond)
		w.step(op)
		w.check()
	}
	w.end()
}

func (w *world) step(op int) {
	switch {
	case op < 5:
		w.pick()
	case op < 7:
		w.wait()
	case op == 7:
		w.cancel()
	case op == 8:
		w.progress()
	case op < 13:
		w.done()
	case op == 13:
		w.adopt()
	case op == 14:
		s := scope(fmt.Sprintf("e%d", w.choose(3)))
		reachable := w.choose(2) == 0
		w.say("observe %s %v", s.Name, reachable)
		w.r.Observe(w.now, s, reachable)
	case op == 16:
		id := fmt.Sprintf("e%d/m", w.choose(3))
		p := Probe{OK: w.choose(2) == 0, TTFT: time.Duration(w.choose(3)) * 20 * time.Second, Reason: "timeout"}
		if w.choose(4) == 0 {
			p.Missed = "probe_expect"
		}
		w.say("probe %s %+v", id, p)
		w.r.Probed(w.now, id, p)
	case op == 17 && w.choose(2) == 0:
		w.override()
	case op == 18:
		w.say("rest")
		w.now = w.now.Add(time.Duration(w.choose(40)) * time.Second)
	default:
		w.say("tick")
		next := w.r.Tick(w.now)
		if !next.IsZero() && !next.After(w.now) {
			w.fail("Tick asks to be called again at %v, which is not after now", next)
		}
	}
	w.collect()
}

func (w *world) override() {
	kind, name := "deployment", fmt.Sprintf("e%d/m", w.choose(3))
	if w.choose(3) == 0 {
		kind, name = "endpoint", name[:2]
	}
	o := []Override{Automatic, Automatic, Automatic, Drain, Disable, Force, ForgetFailure}[w.choose(7)]
	err := w.r.Override(w.now, kind, name, o)
	w.say("%v %s %s: %v", o, kind, name, err)
}

func (w *world) query() Query {
	f := &Facts{Seed: uint64(w.choose(256)), PromptBytes: 38 * w.choose(20), MaxOutput: []int{0, 10, 100, 900, 5000}[w.choose(5)], Stream: w.choose(2) == 0}
	q := Query{Model: fmt.Sprintf("m%d", w.choose(3)), Facts: f}
	names := []string{"e0", "e1/m", "e2/m", "e0/m", "nobody"}
	switch w.choose(10) {
	case 0:
		f.Pin = names[w.choose(len(names))]
	case 1:
		f.ExcludeNames = []string{names[w.choose(len(names))]}
	case 2, 3:
		q.Tried, q.Draw = []string{names[w.choose(len(names))]}, 1+w.choose(3)
		q.Away = q.Tried
	case 4:
		name := names[w.choose(len(names))]
		endpoint, _, _ := strings.Cut(name, "/")
		q.Beside = &Deployment{ID: name, Endpoint: endpoint}
	}
	return q
}

// adopt gives the Router another random fleet of three endpoints; models m0 and m1 share deployments.
func (w *world) adopt() {
	urls, limits, caps := [3]string{}, [3]Limits{}, [3]Limits{}
	for i := range urls {
		urls[i] = fmt.Sprintf("http://e%d", i)
		if w.choose(8) == 0 {
			urls[i] += ".new"
		}
		limits[i] = Limits{InFlight: w.choose(4), Tokens: []int{0, 300, 2000}[w.choose(3)], RPM: []int{0, 0, 30}[w.choose(3)]}
		caps[i] = Limits{InFlight: []int{0, 1, 3, 5}[w.choose(4)], Tokens: []int{0, 1000}[w.choose(2)], TPM: []int{0, 0, 6000}[w.choose(3)]}
	}
	w.specs = nil
	for m := range 3 {
		if w.choose(6) == 0 {
			continue
		}
		spec := PoolSpec{Model: fmt.Sprintf("m%d", m), Strategy: seeded{}}
		for i := range urls {
			if w.choose(5) == 0 {
				continue
			}
			d := depWith(fmt.Sprintf("e%d/m", i), limits[i], caps[i])
			if m == 2 {
				d.ID += "2"
			}
			d.URL, d.Scopes[0].URL = urls[i], urls[i]
			d.Weight = []float64{0, 0.5, 1, 1, 3}[w.choose(5)]
			spec.Deployments = append(spec.Deployments, d)
		}
		w.specs = append(w.specs, spec)
	}
	w.say("adopt %d models", len(w.specs))
	if _, err := w.r.Adopt(w.now, w.specs); err != nil {
		w.fail("%v", err)
	}
	w.collect()
}

func (w *world) pick() {
	q := w.query()
	w.r.Tick(w.now)
	w.collect()
	eligible, kind := w.eligible(&q, w.claims())
	parts := w.parts(&q)
	l, refusal := w.r.Pick(w.now, q)
	switch {
	case (l == nil) == (refusal == nil):
		w.fail("Pick returned %v and %v", l, refusal)
	case l != nil:
		w.say("pick %s -> %s", q.Model, l.Deployment().ID)
		if !slices.Contains(eligible, l.Deployment().ID) {
			w.fail("picked %s, but eligible are %v", l.Deployment().ID, eligible)
		}
		w.checkPreferences(&q, l.Decision(), eligible, parts)
		w.hold(l)
	default:
		w.say("pick %s -> %v", q.Model, refusal.Kind)
		w.decisions = append(w.decisions, refusal.Decision)
		if len(eligible) > 0 || refusal.Kind != kind {
			w.fail("refused as %v, but eligible are %v (%v)", refusal.Kind, eligible, kind)
		}
		if w.choose(2) == 0 {
			w.enqueue(q)
		}
	}
}

func (w *world) wait() { w.enqueue(w.query()) }

func (w *world) enqueue(q Query) {
	waiting := 0
	w.r.Tick(w.now)
	w.collect()
	for _, x := range w.waiters {
		if x.query.Model == q.Model {
			waiting++
		}
	}
	m := &modelWaiter{query: q}
	t, refusal := w.r.Wait(w.now, q, func() { m.wakes++ })
	w.say("wait %s pin %q not %v tried %v -> %v", q.Model, q.Facts.Pin, q.Facts.ExcludeNames, q.Tried, refusal)
	if (refusal != nil) != (waiting == 8) || refusal != nil && refusal.Kind != QueueFull {
		w.fail("%d are waiting, and Wait refused with %+v", waiting, refusal)
	}
	if t != nil {
		m.Ticket = t
		w.waiters = append(w.waiters, m)
	}
}

func (w *world) cancel() {
	if len(w.waiters) == 0 {
		return
	}
	i := w.choose(len(w.waiters))
	w.say("cancel %d", i)
	w.waiters[i].Cancel(w.now)
	if w.choose(2) == 0 {
		w.waiters[i].Cancel(w.now)
	}
	if l, f := w.waiters[i].Result(); l != nil || f != nil {
		w.fail("a cancelled ticket has result %v, %v", l, f)
	}
	w.waiters = slices.Delete(w.waiters, i, i+1)
}

// collect takes what waiters were granted. Sometimes it leaves a grant to be cancelled: then cancels at once.
func (w *world) collect() {
	for i := 0; i < len(w.waiters); {
		m := w.waiters[i]
		if m.element != nil { // in the queue: neither result nor wake-up
			l, f := m.Result()
			if l != nil || f != nil || m.wakes != 0 {
				w.fail("a waiter in the queue has %v, %v, %d wake-ups", l, f, m.wakes)
			}
			i++
			continue
		}
		if m.wakes != 1 {
			w.fail("woken %d times", m.wakes)
		}
		w.waiters = slices.Delete(w.waiters, i, i+1)
		if m.lease != nil && w.choose(4) == 0 {
			w.say("cancel after grant of %s", m.lease.Deployment().ID)
			m.Cancel(w.now)
			i = 0 // others may have been served by that
			continue
		}
		l, f := m.Result()
		switch {
		case l != nil:
			w.say("granted %s", l.Deployment().ID)
			w.hold(l)
		case f.Kind == Saturated || f.Kind == QueueFull:
			w.fail("a waiter was refused as %v", f.Kind)
		default:
			w.say("waiter refused %v", f.Kind)
		}
	}
}

func (w *world) hold(l *Lease) {
	w.decisions = append(w.decisions, l.Decision())
	d := l.Deployment()
	m := &modelLease{
		Lease: l, units: []key{d.key()}, prompt: l.Prompt(), expected: l.Decision().Output, folded: w.now,
	}
	m.tokens = m.prompt + m.expected
	m.work = m.tokens
	for _, s := range d.Scopes {
		m.units = append(m.units, s.key())
	}
	w.leases = append(w.leases, m)
}

func (w *world) progress() {
	if len(w.leases) == 0 {
		return
	}
	l := w.leases[w.choose(len(w.leases))]
	if w.choose(2) == 0 {
		w.say("first token of %s", l.Deployment().ID)
		l.FirstToken(w.now)
		l.work -= l.prompt
		l.prompt, l.folded = 0, w.now
		return
	}
	l.produced += w.choose(200)
	w.say("progress of %s to %d", l.Deployment().ID, l.produced)
	l.Progress(w.now, l.produced)
	if w.now.Sub(l.folded) >= 250*time.Millisecond {
		l.folded = w.now
		l.work = l.prompt + max(l.expected-l.produced, 0)
		l.tokens = max(l.tokens, l.Prompt()+l.produced)
	}
}

func (w *world) done() {
	if len(w.leases) == 0 {
		return
	}
	i := w.choose(len(w.leases))
	l := w.leases[i]
	w.leases = slices.Delete(w.leases, i, i+1)
	usedUp := success()
	usedUp.RetryAfter = time.Second
	o := []Outcome{success(), success(), success(), took(time.Second), took(time.Second), took(time.Second), took(40 * time.Second), broken(),
		broken(), broken(), unreachable(), left(), asked(RateLimited, 3*time.Second), asked(RateLimited, 0), usedUp,
		fault(BadCredential), fault(NotServed), fault(Loading), fault(Reset)}[w.choose(19)]
	o.InputTokens, o.OutputTokens = 10*w.choose(20), w.choose(2000)
	w.say("done %s %v %s", l.Deployment().ID, o.Verdict, o.Class)
	l.Done(w.now, o)
	if w.choose(4) == 0 {
		l.Done(w.now, broken())
		l.FirstToken(w.now)
		l.Progress(w.now.Add(time.Second), 1000)
	}
}

// check sums everything up and compares.
func (w *world) check() {
	type sum struct{ inFlight, tokens, work, trials int }
	sums := map[key]*sum{}
	at := func(k key) *sum {
		if sums[k] == nil {
			sums[k] = &sum{}
		}
		return sums[k]
	}
	for _, l := range w.leases {
		at(l.units[0]).work += l.work
		for _, k := range l.units {
			at(k).inFlight++
			at(k).tokens += l.tokens
		}
		for _, m := range l.marks[:l.nmarks] {
			if m.trial && m.gen == m.unit.breaker.gen {
				at(m.unit.key).trials++
			}
		}
	}
	for k, s := range sums {
		u := w.r.units[k]
		if u == nil {
			w.fail("%v is in use but unknown", k)
		}
		trials := u.breaker.trials
		if u.inFlight != s.inFlight || u.tokens != s.tokens || trials != s.trials {
			w.fail("%v counts in-flight %d, tokens %d, trials %d, want %+v", k, u.inFlight, u.tokens, trials, *s)
		}
		if n := w.r.nodes[k]; n != nil && n.work != s.work {
			w.fail("%v counts work %d, want %d", k, n.work, s.work)
		}
	}
	for k, e := range w.r.engines {
		if len(e.nodes) != 1 || e.running != e.nodes[0].inFlight || e.held != e.nodes[0].tokens {
			w.fail("%v: %d run, with %d tokens, and it has %d deployments", k, e.running, e.held, len(e.nodes))
		}
	}
	for k, n := range w.r.nodes {
		if n.inFlight == 0 && (n.line.waiting != 0 || n.line.charged != 0) || n.line.waiting > n.inFlight || n.line.waiting < 0 || !(n.line.charged >= 0) {
			w.fail("%v: in-flight %d, and in its line %+v", k, n.inFlight, n.line)
		}
	}
	for k, u := range w.r.units {
		if sums[k] == nil && (u.inFlight != 0 || u.tokens != 0 || u.breaker.trials != 0 || !u.member) {
			w.fail("%v is not in use, but is %+v", k, *u)
		}
	}
	w.checkGrants()
	w.claims()
}

// checkGrants holds the leases given by the last operation against limits and breakers.
func (w *world) checkGrants() {
	for _, l := range w.leases {
		if l.Begun() != w.now || l.folded != w.now {
			continue
		}
		for _, m := range l.marks[:l.nmarks] {
			u := m.unit
			if u.limits.InFlight > 0 && u.inFlight > u.limits.InFlight && m.gen == u.breaker.gen && l.Decision().Epoch == w.r.epoch {
				w.fail("%v runs %d, limit %d", u.key, u.inFlight, u.limits.InFlight)
			}
			if u.limits.Tokens > 0 && u.tokens > u.limits.Tokens && u.inFlight > 1 && l.produced == 0 && l.Decision().Epoch == w.r.epoch {
				w.fail("%v holds %d tokens in %d requests, limit %d", u.key, u.tokens, u.inFlight, u.limits.Tokens)
			}
		}
	}
}

// claims walks the queue naively in order of arrival: each waiter must really be short of room, and claims it.
func (w *world) claims() map[key]bool {
	claimed := map[key]bool{}
	w.r.Tick(w.now)
	w.collect()
	for _, m := range w.waiters { // appended in order of arrival
		eligible, kind := w.eligible(&m.query, claimed)
		if len(eligible) > 0 {
			w.fail("a waiter for %s (pin %q, not %v, tried %v) waits although %v are free", m.query.Model, m.query.Facts.Pin, m.query.Facts.ExcludeNames, m.query.Tried, eligible)
		}
		if kind != Saturated {
			w.fail("a waiter waits although it is %v", kind)
		}
		for _, k := range w.short(&m.query, claimed) {
			claimed[k] = true
		}
	}
	return claimed
}

func (w *world) eligible(q *Query, claimed map[key]bool) (ids []string, kind RefusalKind) {
	kind = NoModel
	w.each(q, claimed, func(d *Deployment, short key, ill bool) {
		switch {
		case ill:
		case short != key{}:
			kind = Saturated
		default:
			ids = append(ids, d.ID)
		}
	}, &kind)
	return ids, kind
}

func (w *world) short(q *Query, claimed map[key]bool) (keys []key) {
	var kind RefusalKind
	w.each(q, claimed, func(_ *Deployment, short key, ill bool) {
		if !ill && short != (key{}) {
			keys = append(keys, short)
		}
	}, &kind)
	return keys
}

// each visits the deployments that q allows: the first unit without room, and whether a breaker forbids it.
func (w *world) each(q *Query, claimed map[key]bool, visit func(*Deployment, key, bool), kind *RefusalKind) {
	output := q.Facts.MaxOutput
	if output == 0 {
		output = 200
	}
	need := q.Facts.PromptBytes*10/38 + output
	for _, s := range w.specs {
		if s.Model != q.Model {
			continue
		}
		if *kind == NoModel {
			*kind = Unavailable
		}
		panicking := w.panicking(&s)
		for i := range s.Deployments {
			d := &s.Deployments[i]
			f := q.Facts
			not := append(slices.Clone(f.ExcludeNames), q.Tried...)
			if d.Weight == 0 || f.Pin != "" && f.Pin != d.ID && f.Pin != d.Endpoint ||
				slices.Contains(not, d.ID) || slices.Contains(f.ExcludeNames, d.Endpoint) || q.Beside != nil && q.Beside.Endpoint == d.Endpoint {
				continue
			}
			ill, short := false, key{}
			for _, k := range []key{d.key(), d.Scopes[0].key()} {
				u := w.r.units[k]
				ill = ill || w.out(u, panicking)
				full := claimed[k] || u.limits.InFlight > 0 && u.inFlight >= u.limits.InFlight ||
					u.limits.Tokens > 0 && u.inFlight > 0 && float64(u.tokens+need) > float64(u.limits.Tokens)*u.breaker.rampShare(w.now) ||
					u.requests.Wait(w.now, 1) > 0 || u.volume.Wait(w.now, float64(need)) > 0
				if full && short == (key{}) {
					short = k
				}
			}
			visit(d, short, ill)
		}
	}
}

// out reports whether a unit lets nothing more through.
func (w *world) out(u *unit, panicking bool) bool {
	b := &u.breaker
	switch b.order {
	case Drain, Disable:
		return true
	case Force:
		return false
	}
	certain := b.rule == RuleCredential || b.rule == RuleNotServed
	tripped := b.tripped && (w.now.Before(b.until) || b.trialLeft(w.now) > 0) && (certain || !panicking)
	return tripped || w.now.Before(b.cool)
}

func (w *world) panicking(s *PoolSpec) bool {
	well, all := 0, 0
	for i := range s.Deployments {
		d := &s.Deployments[i]
		own, shared := w.r.units[d.key()].breaker.order, w.r.units[d.Scopes[0].key()].breaker.order
		if d.Weight == 0 || own == Drain || own == Disable || shared == Drain || shared == Disable {
			continue
		}
		all++
		if !w.out(w.r.units[d.key()], false) && !w.out(w.r.units[d.Scopes[0].key()], false) {
			well++
		}
	}
	return float64(well) < w.r.health.PanicThreshold*float64(all)
}

// part is what a deployment was to get just before a pick.
type part struct{ trial, degraded, slowStart bool }

func (w *world) parts(q *Query) map[string]part {
	parts := map[string]part{}
	if p := w.r.pools[q.Model]; p != nil {
		for i := range p.members {
			var at part
			for _, u := range p.members[i].node.units {
				switch b := &u.breaker; b.state(w.now) {
				case HalfOpen:
					at.trial = at.trial || b.trialLeft(w.now) == 0
				case SlowStart, Degraded:
					at.degraded = at.degraded || b.degradedShare() < 1
					at.slowStart = at.slowStart || b.rampShare(w.now) < 1
				}
			}
			parts[p.members[i].dep.ID] = at
		}
	}
	return parts
}

// checkPreferences holds a decision against what was eligible: who is missing is missing for a reason that holds, who
// waits for a trial goes first, and the record alone leads to the same choice.
func (w *world) checkPreferences(q *Query, d *Decision, eligible []string, parts map[string]part) {
	left, trialLeft := 0, false
	for _, c := range d.Candidates {
		ok, was := slices.Contains(eligible, c.ID), parts[c.ID]
		switch c.Cut {
		case CutNone:
			left++
			trialLeft = trialLeft || was.trial
		case CutDomain:
			endpoint, _, _ := strings.Cut(c.ID, "/")
			ok = ok && slices.Contains(q.Away, c.ID) || !ok && q.Beside != nil && q.Beside.Endpoint == endpoint // each is its own failure domain
		case CutOnTrial:
			ok = ok && was.trial && q.Draw > 0 && len(q.Tried) > 0
		case CutDegraded:
			ok = ok && was.degraded
		case CutSlowStart:
			ok = ok && was.slowStart
		default:
			ok = !ok
		}
		if !ok {
			w.fail("%s is cut by %q, but eligible are %v and its part is %+v", c.ID, c.Cut, eligible, was)
		}
	}
	chosen := parts[d.Chosen]
	switch {
	case left != d.Eligible:
		w.fail("%d candidates are left, %d are said to be eligible", left, d.Eligible)
	case trialLeft && !d.Panic && !(d.Trial && chosen.trial):
		w.fail("a trial is due, but %s was chosen", d.Chosen)
	case d.Trial && chosen == part{}:
		w.fail("%s was chosen without the strategy, but is as well as any", d.Chosen)
	}
	if again := d.Recompute(seeded{}, q.Facts); again != d.Chosen {
		w.fail("chose %s, recomputed %s", d.Chosen, again)
	}
}

// end ends everything and takes the fleet away: nothing may be left.
func (w *world) end() {
	for len(w.waiters) > 0 || len(w.leases) > 0 {
		for _, l := range w.leases {
			l.Done(w.now, left())
		}
		w.leases = nil
		for len(w.waiters) > 0 {
			w.waiters[0].Cancel(w.now)
			w.waiters = w.waiters[1:]
		}
	}
	mustBeIdle(w.t, w.r, w.now)
	if _, err := w.r.Adopt(w.now, nil); err != nil {
		w.fail("%v", err)
	}
	if len(w.r.units)+len(w.r.nodes)+len(w.r.engines)+len(w.r.queues)+len(w.r.pools) != 0 {
		w.fail("left behind: %d units, %d nodes, %d queues, %d pools", len(w.r.units), len(w.r.nodes), len(w.r.queues), len(w.r.pools))
	}
}

// TestRandomOperations: in-flight, tokens, work and trials agree with a sum over the leases after any
// interleaving of operations, and are zero in the end; who is served agrees with a naive model.
func TestRandomOperations(t *testing.T) {
	seen := map[Cut]int{}
	trials, panics := 0, 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{t: t, now: start, source: fromSeed(seed, 4000)}
			w.run()
			for _, d := range w.decisions {
				for _, c := range d.CutCounts() {
					seen[c.Cut] += c.Count
				}
				if d.Trial {
					trials++
				}
				if d.Panic {
					panics++
				}
			}
		})
	}
	for _, c := range []Cut{CutWeight, CutPinned, CutExcluded, CutTried, CutDrained, CutDisabled, CutOpen, CutCooling, CutTrial, CutInFlight,
		CutTokens, CutQuota, CutEarlier, CutDomain, CutOnTrial, CutDegraded, CutSlowStart} {
		if seen[c] < 50 {
			t.Errorf("only %d candidates were cut by %q: the model hardly tests it", seen[c], c)
		}
	}
	if trials < 100 || panics < 100 {
		t.Errorf("only %d trials and %d panics", trials, panics)
	}
}

func FuzzRandomOperations(f *testing.F) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 100<<seed)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := &world{t: t, now: start, source: fromBytes(b)}
		w.run()
	})
}
