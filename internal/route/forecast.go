package route

import (
	"cmp"
	"math"
	"time"

	"evenkeel/internal/prefix"
)

// Forecast is what is expected of a candidate for the request at hand.
type Forecast struct {
	Cached  int     // tokens of the prompt that its cache is likely to hold
	Wait    float64 // seconds until it has done the prompts before this one
	Others  float64 // seconds of Wait that its engine says are for what others sent
	Load    float64 // seconds of Wait until its model, or the adapter that is asked for, is in memory
	Prefill float64 // seconds that it takes for this one then
	Common  float64 // seconds of Prefill for how so many prompts begin that each deployment should have it: those that follow need not do it again
	Answers int     // that it is producing, for others too
	Own     float64 // part of its cache that this request needs, 0 = not known
	Fill    float64 // part of its cache that what runs there and this request need, 0 = not known
	Used    float64 // part of its tightest limit per minute that is used up once it is sent, 0 = there is none
	Token   float64 // seconds between the tokens of its answer
	Slower  float64 // seconds by which it makes the time between the tokens of each other answer there longer
	Dollars float64 // that the request costs there
}

// Outlook is what a Round says of all candidates of a model.
type Outlook struct {
	Rate    float64 // requests a second for each deployment, 0 = not known
	Prefill float64 // mean seconds of a prompt
	// Strangers is the share of the conversations that come here of which the turn before was served through another balancer.
	Strangers float64
	// Error is how far times to the first token are from what was forecast: the mean of the logarithm of their ratio, whichever way, once
	// outlookLeast are known. Strategies should not build on forecasts that are off by much.
	Error float64
	// WholeError is as Error, of how long answers took that were not streamed.
	WholeError float64
	// Churn is the share of what caches take in that the same one had before and has pushed out since: so likely is it that a token which gives way
	// to another is asked for again. Known of conversations only.
	Churn float64
}

const (
	// DefaultCacheTokens is how many tokens a deployment's prefix cache is taken to hold if nobody says: too large a guess costs
	// little, too small a one much.
	DefaultCacheTokens = 2_000_000

	doubtMemory    = 20   // answers over which it is a mean what engines say of their caches
	missesInARow   = 5    // so many prompts in a row of which nothing is found: the cache is empty
	missShare      = 0.1  // of what should be there is nothing
	missTokens     = 500  // what should be there at least
	answerPrior    = 0.5  // share of an answer that is thought to be found again
	outlookSpan    = 50   // requests of each deployment over which an Outlook is a mean
	outlookLeast   = 30   // answers before its Error is known
	shortestGap    = 1e-3 // seconds between requests of each deployment, at the busiest
	surelyCached   = 0.9  // of the blocks that should be there: then what is behind them says something of the answer
	strangerMemory = 100  // conversations over which an Outlook's Strangers are a mean
	errorMemory    = 100  // answers over which Error is a mean
	leastForecast  = 5e-3 // seconds: below, an error is none
	mostChurn      = 0.9  // of an Outlook
	fewTokens      = 8    // an answer with fewer says little of the time between them
	mostlyAnswer   = 0.2  // part of a whole answer's time below which it matters little whether the first token came as forecast
)

// memory is what is known about a deployment's cache. Guarded by Router.mu, but for holder, which never changes.
type memory struct {
	holder int     // its number in Router.index
	tokens int     // how many it holds, 0 = not known
	doubt  float64 // share of what should be there that is not
	misses int     // in a row
}

// room is how many blocks of so many bytes are remembered of a deployment.
func (m *memory) room(blockBytes int) int {
	tokens := m.tokens
	if tokens == 0 {
		tokens = DefaultCacheTokens
	}
	return int(float64(tokens) * priorBytesPerToken / float64(max(blockBytes, 1)))
}

// outlook is what is learned for Outlook. Guarded by Router.mu.
type outlook struct {
	gap, prefill mean
	last         time.Time
	errors       mean
	wholes       mean
	answers      mean // share of an answer that the next turn found
	strangers    mean // see Outlook
	computed     mean // tokens of a prompt that no cache held
	again        mean // of these, what the deployment that served the turn before had and has pushed out
	guesses      mean // share of what is guessed to be in a cache that is found there
}

func (o *outlook) requested(now time.Time, seconds float64, deployments int) {
	if !o.last.IsZero() {
		o.gap.addOf(max(now.Sub(o.last).Seconds(), 0), outlookSpan*deployments)
	}
	o.prefill.addOf(seconds, outlookSpan*deployments)
	o.last = now
}

func (o *outlook) of(deployments int) Outlook {
	x := Outlook{Prefill: o.prefill.value, Strangers: o.strangers.value}
	if o.gap.n > 0 {
		x.Rate = 1 / max(o.gap.value*float64(deployments), shortestGap)
	}
	if o.errors.n >= outlookLeast {
		x.Error = o.errors.value
	}
	if o.wholes.n >= outlookLeast {
		x.WholeError = o.wholes.value
	}
	if o.computed.n >= outlookLeast && o.computed.value > 0 {
		x.Churn = min(o.again.value/o.computed.value, mostChurn)
	}
	return x
}

// charge is what a lease's prompt was expected to take, and what shows whether it did.
type charge struct {
	Forecast
	prompt      int     // tokens
	seconds     float64 // in the deployment's line; 0 = not, or no more
	ahead       float64 // seconds that the line said
	joined      float64 // see line.passed
	load        float64 // seconds that loading is expected to take; without those before there is room
	idle        bool    // nothing was in the line
	beside      int     // requests that ran there
	elsewhere   float64 // seconds to the first token that were forecast where it would come soonest, of the others; 0 = none could be chosen
	step        *step   // in which the engine was done with the prompt, nil = not known
	blocks      float64 // tokens of the prompt that the cache should hold,
	guess       float64 // that it may hold, if the turn before was served there
	once        float64 // that it held when it had served the turn before, 0 = that was another or is not known
	lost        float64 // where that is another: what it is thought to hold no more
	answer      float64 // and tokens behind them that it should hold if they are the answer to them
	begun       uint32  // ordinal among the first prompts of conversations; 0 = it is none
	blockTokens float64 // of one hash of the prompt
}

// match looks a prompt up in the index, before Router.mu is held.
func (r *Router) match(q *Query, scratch []prefix.Match) {
	if len(q.Facts.Prefix) > 0 {
		q.matches = r.index.Match(q.Facts.Prefix, scratch, &q.began)
	}
}

// remember tells the index where a prompt went.
func (r *Router) remember(l *Lease) {
	if f := l.facts; len(f.Prefix) > 0 {
		r.index.Insert(l.engine.memory.holder, f.Prefix, l.expected, int(math.Ceil(float64(l.expected)/l.charge.blockTokens)), l.charge.begun)
	}
}

// sized makes the index hold as many blocks as caches do, for blocks of this size.
func (r *Router) sized(blockBytes int) {
	if blockBytes == 0 || blockBytes == r.blockBytes {
		return
	}
	r.blockBytes = blockBytes
	for _, e := range r.engines {
		r.index.Resize(e.memory.holder, e.memory.room(blockBytes))
	}
}

// forecast says what is to be expected of a deployment.
func (r *Router) forecast(now time.Time, p *pool, m *member, q *Query, prompt, output int) charge {
	n := m.node
	c := charge{prompt: prompt, ahead: n.line.ahead(now), idle: n.line.idle(now), blockTokens: float64(q.Facts.PrefixBytes) / p.stats.prefixPerToken(q.Facts, prompt)}
	o := n.hint.others(now, cmp.Or(n.line.prompt.value, p.stats.outlook.prefill.value))
	c.idle = c.idle && o.wait == 0
	c.Answers = max(0, n.running-n.line.waiting) + int(math.Round(o.answers))
	c.Others = o.wait
	n.decode.begin(now, decode, &p.stats.decode)
	c.beside = n.running + int(math.Round(o.answers))
	x := beside(c.beside)
	c.Token = n.decode.of(now, &x)
	c.Slower = n.decode.theta.slope() * n.decode.level(now)
	var room float64
	c.load, room = n.loading(now, c.Answers, output, c.Token)
	c.Load = c.load + room
	c.Wait = c.ahead*n.line.part() + c.Others + c.Load
	c.recall(r, p, m, q)
	n.speed.begin(now, prefill, &p.stats.speed)
	x = featuresOf(prompt-c.Cached, prompt, c.Answers)
	c.Prefill = n.speed.of(now, &x)
	if common := int(float64(p.common(q)) * c.blockTokens); common > c.Cached {
		x = featuresOf(max(prompt-common, 0), prompt, c.Answers)
		c.Common = max(c.Prefill-n.speed.of(now, &x), 0)
	}
	if t := n.memory.tokens; t > 0 {
		c.Own = float64(prompt+output) / float64(t)
		c.Fill = min(float64(n.held+prompt+output)/float64(t)+o.fill, 1)
	}
	for _, u := range n.units {
		c.Used = max(c.Used, u.used(now, prompt+output))
	}
	c.Dollars = m.dep.Price.Of(prompt, c.Cached, p.stats.answerTokens(q.Facts))
	return c
}

// elsewhere is the soonest first token that is forecast for any candidate but the chosen one, in seconds; 0 if there is no other.
func (r *Router) elsewhere(chosen int) float64 {
	soonest := 0.0
	for i := range r.charges {
		if first := r.charges[i].first(); i != chosen && (soonest == 0 || first < soonest) {
			soonest = first
		}
	}
	return soonest
}

// lost is how many tokens of the prompt whoever served the turn before is thought to hold no more, if that is not the chosen one.
func (r *Router) lost(chosen int) float64 {
	for i := range r.charges {
		if c := &r.charges[i]; i != chosen && c.once > 0 {
			return max(c.once-float64(c.Cached), 0)
		}
	}
	return 0
}

// first is how many seconds the first token takes.
func (f *Forecast) first() float64 { return f.Wait + f.Prefill }

// join puts the prompt of a lease into its deployment's line, before the lease is counted there.
func (l *Lease) join(now time.Time, q *Query) {
	l.router.sized(q.Facts.PrefixBytes)
	seconds := l.charge.Prefill
	if l.dep.Base != "" {
		seconds += l.charge.load // nothing else is computed meanwhile
	}
	l.engine.line.join(now, seconds, q.Facts.Stream)
	l.charge.joined = l.engine.line.joined
	if q.Facts.Stream { // of another, nobody sees when the prompt is done
		l.charge.seconds = seconds
	}
	o := &l.pool.stats.outlook
	o.requested(now, l.charge.Prefill, len(l.pool.members))
	if t := &q.Facts.Turns; t.Past[0].Hash != 0 {
		unknown := 0.0
		if t.stranger(l.pool) {
			unknown = 1
		}
		o.strangers.addOf(unknown, strangerMemory)
	}
}

// leave takes it out of the line.
func (l *Lease) leave(now time.Time, first bool) {
	c, n := &l.charge, &l.engine.line
	if c.seconds == 0 {
		return
	}
	if first {
		l.engine.steps.first(now, l.begun, n.first, c, l.engine.speed.theta[0])
	}
	n.leave(now, c.seconds, first)
	c.seconds = 0
}

// compare learns from an answer that came, after so many seconds, what forecasts are worth.
func (l *Lease) compare(now time.Time, o *Outcome, seconds float64) {
	c, n, e, s := &l.charge, l.node, l.engine, l.pool.stats
	off := math.Abs(math.Log(max(seconds, leastForecast) / max(c.first(), leastForecast)))
	s.outlook.errors.addOf(off, errorMemory)
	n.off.addOf(off, errorMemory)
	if c.elsewhere > 0 {
		n.regret.addOf(max(0, seconds-c.elsewhere), errorMemory)
	}
	x := featuresOf(c.prompt-c.Cached, c.prompt, c.Answers)
	if o.Reported && o.InputTokens > 0 {
		x = featuresOf(bounded(o.InputTokens-o.CachedTokens), bounded(o.InputTokens), c.Answers)
	}
	if c.load > 0 { // the rest of it says nothing of prompts
		if l.dep.Base == "" || c.idle && c.Load == c.load { // else it may have waited for much besides
			e.hint.load.addOf(max(seconds-(c.Wait-c.load)-c.Prefill, 0), loadMemory)
		}
		return
	}
	e.line.learn(seconds-e.speed.of(now, &x)-c.Others, c.ahead)
	if c.step != nil {
		thought := featuresOf(c.prompt-c.Cached, c.prompt, 0)
		part, took := c.step.example(&thought, &x)
		e.speed.learn(now, prefill, &s.speed, &part, took, c.idle)
	}
	if o.ITL > 0 {
		l.learnPace(now, o.ITL.Seconds(), o.OutputTokens >= fewTokens)
	}
}

// compareWhole learns from an answer that was not streamed, of which nobody saw the first token: what was before it is done, and what its
// tokens took if the first one came as forecast.
func (l *Lease) compareWhole(now time.Time, o *Outcome) {
	if l.facts.Stream {
		return
	}
	l.engine.line.passed(now, l.charge.joined)
	whole, first, tokens := now.Sub(l.begun).Seconds(), l.charge.first(), l.pool.stats.answerTokens(l.facts)
	if o.Reported {
		tokens = bounded(o.OutputTokens)
	}
	expected := first + float64(tokens)*l.charge.Token
	l.pool.stats.outlook.wholes.addOf(math.Abs(math.Log(max(whole, leastForecast)/max(expected, leastForecast))), errorMemory)
	if o.Reported && o.OutputTokens >= fewTokens {
		l.learnPace(now, max((whole-first)/float64(bounded(o.OutputTokens)), leastSeconds), first < mostlyAnswer*whole)
	}
}

// learnPace takes what each token of an answer took, in seconds.
func (l *Lease) learnPace(now time.Time, seconds float64, sure bool) {
	x := beside(l.charge.beside)
	l.engine.decode.learn(now, decode, &l.pool.stats.decode, &x, seconds, sure)
}

// reveal learns from what an engine says it found in its cache.
func (l *Lease) reveal(o *Outcome) {
	c, m := &l.charge, &l.engine.memory
	if !o.Reported || o.InputTokens == 0 {
		return
	}
	cached := float64(bounded(o.CachedTokens))
	l.pool.stats.outlook.guessed(c, cached)
	l.pool.stats.outlook.tookIn(c, bounded(o.InputTokens), cached, len(l.pool.members))
	if c.blocks == 0 {
		return
	}
	m.doubt += (1 - min(cached/c.blocks, 1) - m.doubt) / doubtMemory
	switch {
	case c.blocks < missTokens: // a block more or less says nothing
	case cached > missShare*c.blocks:
		m.misses = 0
	default:
		if m.misses++; m.misses == missesInARow {
			m.misses = 0
			l.router.index.Drop(m.holder)
		}
	}
	if c.answer > 0 && cached >= surelyCached*c.blocks {
		l.pool.stats.outlook.answers.addOf(min(max((cached-c.blocks)/c.answer, 0), 1), doubtMemory)
	}
}
