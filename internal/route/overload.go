package route

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"slices"
	"time"
)

// When a model is asked for more than its deployments can do, its queue fills. Who then comes is told so at once, and
// when to come back: at a time at which there will be room, since it is kept. The backlog is the waiters and those who
// were promised a place and are expected to come; it is served at the drain rate. A place is given for the time at
// which the backlog before it has gone down to the mark, a little below a full queue, so that chance does not make the
// promise false; and as long as there are promises, who comes for the first time is let in only below the mark, so that
// nobody overtakes. What is promised lies in the near future only: a longer backlog would outlast the overload. Who
// gets no place is told no time.

const (
	// The horizon of promises is a multiple of what a request takes, within limits. SDKs of OpenAI and Anthropic do not
	// heed a time above 60 s (_calculate_retry_timeout).
	horizonRequests = 2.0
	horizonLeast    = 10 * time.Second
	horizonMost     = time.Minute
	aheadLeast      = 3.0 // requests served within it, if the queue is too short for more
	// markSpread is how many standard deviations of the number of requests served within the horizon the mark is below a
	// full queue, and how many newcomers are held below the mark.
	markSpread = 2.0
	// sureOfTime is how many standard deviations a wait may turn out longer than predicted: 1.3 are 90 of 100 times.
	sureOfTime = 1.3
	// rateError is the relative standard deviation of a drain rate that was learned from drainSample departures.
	rateError = 1 / 8.0
	// sureTooLate is the same for giving up on who waits already.
	sureTooLate = 2.0
	// reviewEvery is how often it is seen whether waiters can still be served in time.
	reviewEvery = time.Second
)

// overload is what is known about one model's queue. Guarded by Router.mu.
type overload struct {
	drain  drain
	places places
}

// advance brings the time up to now. waiting is how many have waited since the last time.
func (o *overload) advance(now time.Time, waiting int) {
	o.drain.advance(now, waiting > 0)
	o.places.lapse(now)
}

// room is how many may wait before a request that must be served within left (0 = whenever), most (0 = no limit) at any rate.
// timely says that its deadline, not most, is what bounds them. soonest is when limits per minute let the next one pass.
func (o *overload) room(left time.Duration, most int, soonest time.Duration) (n int, timely bool) {
	n = math.MaxInt
	if most > 0 {
		n = most
	}
	rate := o.drain.perSecond()
	if left == 0 || rate == drainUnknown {
		return n, false
	}
	if o.drain.quota > 0 { // no chance is in it
		within := 0
		if left >= soonest {
			within = 1 + int(min((left-soonest).Seconds()*rate, 1<<30))
		}
		return min(n, within), within < n
	}
	// The largest n with (1+sureOfTime·rateError)·n + sureOfTime·√n ≤ rate·left.
	const whole = 1 + sureOfTime*rateError
	root := (math.Sqrt(sureOfTime*sureOfTime+4*whole*rate*max(left, 0).Seconds()) - sureOfTime) / (2 * whole)
	if within := int(min(root*root, 1<<30)); within < n {
		return within, true
	}
	return n, false
}

// marks are up to how many waiters places are promised, and up to how many newcomers are let in beside them.
func (o *overload) marks(room int) (mark, low int) {
	chance := int(math.Ceil(markSpread * math.Sqrt(o.drain.perSecond()*o.horizon(room).Seconds())))
	mark = room - min(chance, room/2)
	return mark, max(mark-chance, 0)
}

// horizon is up to when places are promised. Beyond what a queue can make up for by its length, promises would be false.
func (o *overload) horizon(room int) time.Duration {
	if o.drain.quota > 0 { // no chance is in it
		return horizonMost
	}
	h := min(max(time.Duration(horizonRequests*o.drain.lasts.value*float64(time.Second)), horizonLeast), horizonMost)
	if rate := o.drain.perSecond(); rate > 0 {
		steady := float64(room) / (2 * markSpread)
		requests := max(steady*steady, aheadLeast) // so that there is a place to give at all
		h = min(h, time.Duration(min(requests/rate, horizonMost.Seconds())*float64(time.Second)))
	}
	return h
}

// backlog is how many are to be served before the next one who is promised a place.
func (o *overload) backlog(waiting int) float64 {
	return float64(waiting) + o.places.kept()*float64(o.places.open)
}

// admits reports whether a request may join the queue; mine is its place if it has one that is due.
func (o *overload) admits(waiting, room int, mine bool) bool {
	switch {
	case waiting >= room:
		return false
	case mine || o.places.open == 0:
		return true
	}
	if o.drain.quota > 0 {
		return math.Ceil(o.backlog(waiting)) < float64(room)
	}
	mark, low := o.marks(room)
	return waiting < low || o.backlog(waiting) < float64(mark)
}

// unknownDrain is when to come back as long as nobody knows how long requests take.
const unknownDrain = time.Second

// comeBack promises a place to a request that is turned away, and returns after what time it is; 0 = there is none. soonest
// is when limits per minute let the next one pass, if they hold the queue up.
func (o *overload) comeBack(now time.Time, print uint64, waiting, room int, soonest time.Duration) time.Duration {
	rate := o.drain.perSecond()
	if rate == drainUnknown {
		return unknownDrain
	}
	mark, _ := o.marks(room)
	seconds := max(o.backlog(waiting)-float64(mark)+1, 1) / rate
	if o.drain.quota > 0 {
		seconds = o.backlog(waiting)/rate + soonest.Seconds()
	}
	if seconds > o.horizon(room).Seconds() {
		return 0
	}
	wait := max(time.Duration(seconds*float64(time.Second)), time.Millisecond).Truncate(time.Millisecond)
	return o.places.promise(now, print, wait)
}

// usualWait is when those who wait now will have been served: nothing is kept for then.
func (o *overload) usualWait(waiting int) time.Duration {
	rate := o.drain.perSecond()
	if rate == drainUnknown {
		return unknownDrain
	}
	s := min(float64(waiting+1)/rate, horizonMost.Seconds())
	return max(time.Duration(s*float64(time.Second)).Truncate(time.Millisecond), time.Millisecond)
}

// print recognises a request that comes back: by whose it is, and by its text as far as routing knows it.
func (q *Query) print() uint64 {
	f := q.Facts
	h := fnv.New64a()
	h.Write([]byte(f.Tenant))
	h.Write([]byte{0})
	h.Write([]byte(f.API))
	var b [8]byte
	number := func(n uint64) {
		binary.LittleEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	number(uint64(f.PromptBytes))
	number(uint64(f.MaxOutput))
	number(f.Text)
	return h.Sum64()
}

// left is how long a query may wait, 0 if that is not bounded; never 0 if it is.
func (q *Query) left(now time.Time) time.Duration {
	if q.Until.IsZero() {
		return 0
	}
	if d := q.Until.Sub(now); d > 0 {
		return d
	}
	return -1
}

// turnAway returns a refusal if a query may not wait, and uses its place if it has one and may. Callers hold mu.
func (r *Router) turnAway(now time.Time, q *Query) *Refusal {
	p := r.pools[q.Model]
	if p == nil { // sweep says so
		return nil
	}
	o, waiting := &p.stats.overload, r.waiting[q.Model]
	o.advance(now, waiting)
	soonest, quota := time.Duration(0), o.drain.quota
	tokens := p.stats.promptTokens(q.Facts) + p.stats.outputTokens(q.Facts)
	if r.filter(now, p, q, tokens, 0); len(r.eligible) == 0 { // else there is room, which is kept for others
		soonest, quota = r.soonest, r.quotaRate(tokens)
	}
	if q.particular() {
		return r.turnAwayParticular(now, q, soonest, quota > 0)
	}
	o.drain.quota = quota
	room, timely := o.room(q.left(now), r.maxWaiting, soonest)
	print := q.print()
	mine, inTime := o.places.due(now, print, q.Facts.ClientRetry > 0)
	again := len(q.Tried) > 0 // it was let in already
	if o.admits(waiting, room, inTime || again) {
		if inTime {
			o.places.use(mine)
		}
		return nil
	}
	f := r.bare(now, q, QueueFull)
	switch {
	case timely && quota > 0:
		f.Kind = PerMinute
	case timely:
		f.Kind = TooLate
	}
	switch {
	case inTime: // the promise was not kept; it gets another one
		o.places.use(mine)
	case mine != nil && mine.next == nil && q.Facts.ClientRetry > 0: // too early
		f.RetryIn = mine.at.Sub(now)
		return f
	}
	f.RetryIn = o.comeBack(now, print, waiting, room, soonest)
	if f.RetryIn == 0 && timely && o.places.open == 0 { // no overload: its deadline is shorter than a usual wait
		f.RetryIn = o.usualWait(waiting)
	}
	return f
}

// particular reports whether the query says by name who may serve it. What keeps it out need not keep out the others, so it
// neither teaches how fast the model's queue empties nor gets a place in it.
func (q *Query) particular() bool {
	return q.Facts.Pin != "" || len(q.Facts.ExcludeNames) > 0
}

// turnAwayParticular is turnAway for those.
func (r *Router) turnAwayParticular(now time.Time, q *Query, soonest time.Duration, quota bool) *Refusal {
	waiting, left := r.waiting[q.Model], q.left(now)
	var f *Refusal
	switch {
	case r.maxWaiting > 0 && waiting >= r.maxWaiting:
		f = r.bare(now, q, QueueFull)
	case quota && left != 0 && left < soonest:
		f = r.bare(now, q, PerMinute)
	default:
		return nil
	}
	if f.RetryIn = soonest; !quota || soonest == 0 {
		f.RetryIn = r.pools[q.Model].stats.overload.usualWait(waiting)
	}
	return f
}

// arrived uses the place of a query that found room at once, if l is not nil. Callers hold mu.
func (r *Router) arrived(now time.Time, q *Query, l *Lease) {
	if l == nil || l.pool.stats.overload.places.open == 0 {
		return
	}
	o := &l.pool.stats.overload
	o.advance(now, r.waiting[q.Model])
	if mine, inTime := o.places.due(now, q.print(), q.Facts.ClientRetry > 0); inTime {
		o.places.use(mine)
	}
}

// overloadOf returns what is known about a model's queue, nil if the model is not served.
func (r *Router) overloadOf(model string) *overload {
	if p := r.pools[model]; p != nil {
		return &p.stats.overload
	}
	return nil
}

// review refuses waiters who can hardly be served in time any more, once in a while: they may as well know. It judges
// by those before them in the same queue alone, in their favour. Callers hold mu and wake the result after unlocking.
func (r *Router) review(now time.Time) (woken []*Ticket) {
	if r.timely == 0 {
		return nil
	}
	if now.Sub(r.reviewed) < reviewEvery {
		r.wakeIn(now, reviewEvery-now.Sub(r.reviewed))
		return nil
	}
	r.reviewed = now
	r.wakeIn(now, reviewEvery)
	for _, q := range r.queues {
		woken = append(woken, r.lateIn(now, q)...)
	}
	slices.SortFunc(woken, func(a, b *Ticket) int { return cmp.Compare(a.seq, b.seq) })
	for _, t := range woken {
		r.drop(now, t)
		t.refusal = r.bare(now, &t.query, TooLate)
		o, waiting := r.overloadOf(t.query.Model), r.waiting[t.query.Model]
		room, _ := o.room(t.query.left(now), r.maxWaiting, 0)
		t.refusal.RetryIn = o.comeBack(now, t.query.print(), waiting, room, 0)
	}
	return woken
}

func (r *Router) lateIn(now time.Time, q *queue) (found []*Ticket) {
	o := r.overloadOf(q.class.model)
	if o == nil {
		return nil
	}
	o.advance(now, r.waiting[q.class.model])
	rate, n := o.drain.perSecond(), 0.0
	for e := q.waiting.Front(); e != nil && rate > 0; e = e.Next() {
		t := e.Value.(*Ticket)
		if left := t.query.left(now); left != 0 && n+1-sureTooLate*math.Sqrt(n+1) > rate*max(left, 0).Seconds() {
			found = append(found, t)
			continue
		}
		n++
	}
	return found
}
