package drill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"evenkeel/internal/mock"
)

// request is what a client asks. The zero value is a short chat that is not streamed.
type request struct {
	path   string            // default /v1/chat/completions
	model  string            // default that of the bench
	stream bool              //
	tokens int               // most output tokens; default 8
	prompt string            // default one that differs from request to request,
	long   int               // and has so many bytes at least
	body   []byte            // instead of all that
	header map[string]string //
	copy   io.Writer         // if set, takes the body of the answer as it came
	slow   time.Duration     // pause before each read of the answer
	first  func()            // called at the first content
	leave  int               // tokens after which the client leaves; 0 = never
	limit  time.Duration     // patience, default 30 s
	ctx    context.Context   // the client leaves when it ends; default: that of the row
}

var serial atomic.Int64 // no two prompts are equal

// text is the body. Without a prompt no two are equal.
func (r *request) text() []byte {
	if r.body != nil {
		return r.body
	}
	prompt := r.prompt
	if prompt == "" {
		prompt = fmt.Sprintf("request %d of the drill", serial.Add(1))
		prompt += strings.Repeat(".", max(r.long-len(prompt), 0))
	}
	c := settings{"model": r.model, "max_tokens": r.tokens, "messages": []settings{{"role": "user", "content": prompt}}}
	if r.tokens == 0 {
		c["max_tokens"] = 8
	}
	if r.stream {
		c["stream"] = true
		c["stream_options"] = settings{"include_usage": true}
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic("BUG: drill: " + err.Error())
	}
	return text
}

// ending says how an answer ended for its client.
type ending int

const (
	complete ending = iota // whole: every event, a finish reason and [DONE], or whole JSON
	told                   // content, then an error event that says that this is not all
	refused                // an error answer of the balancer
	passed                 // an error answer of an engine
	left                   // the client itself left
	failed                 // anything else: the client was let down
)

var endings = [...]string{"complete", "told of a cut", "refused", "given an engine's error", "left", "failed"}

// answer is one request as its client saw it.
type answer struct {
	ending   ending
	why      string // it failed or was refused
	status   int    // 0 = none came
	header   http.Header
	code     string // of an error, in the body or in an event
	who      string // the engine, as its first token says
	engine   string // the endpoint, as the balancer says
	attempts int
	tokens   int // events with content
	began    time.Time
	ttft     time.Duration // 0 if no content came
	took     time.Duration
}

// scoreboard counts over all requests of a row, for the invariants. Safe for concurrent use.
type scoreboard struct {
	sent     atomic.Int64 // requests
	answered atomic.Int64 // of which a status line came
	clean    atomic.Int64 // whole answers with status 200
	running  atomic.Int64
	most     atomic.Int64 // that ran at one time
}

func (s *scoreboard) begin() {
	s.sent.Add(1)
	n := s.running.Add(1)
	for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
	}
}

// http is the client of the row's requests.
func (b *Bench) http() *http.Client {
	if b.clients == nil {
		b.clients = b.newClient()
	}
	return b.clients
}

// newClient is a client with connections of its own; it never repeats a request by itself, since all are POSTs.
func (b *Bench) newClient() *http.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 2048, DisableCompression: true}
	b.later(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

const clientPatience = 30 * time.Second

// ask sends a request to the balancer and reads the answer to its end. Safe for concurrent use once http was called.
func (b *Bench) ask(x *balancer, r request) *answer { return b.askBy(b.clients, x, r) }

func (b *Bench) askBy(client *http.Client, x *balancer, r request) (a *answer) {
	b.score.begin()
	a = &answer{began: time.Now()}
	defer func() {
		a.took = time.Since(a.began)
		b.score.running.Add(-1)
		if a.status != 0 {
			b.score.answered.Add(1)
		}
		if a.ending == complete {
			b.score.clean.Add(1)
		}
	}()
	limit := r.limit
	if limit == 0 {
		limit = clientPatience
	}
	if r.ctx == nil {
		r.ctx = b.ctx
	}
	ctx, cancel := context.WithTimeout(r.ctx, limit)
	defer cancel()
	r.model = cmpOr(r.model, b.asked())
	path := r.path
	if path == "" {
		path = "/v1/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url+path, bytes.NewReader(r.text()))
	if err != nil {
		return a.fail("%v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if b.owned != nil {
		req.Header.Set("x-evenkeel-fallback", "off") // the rows are about one model
		if b.pin != "" {
			req.Header.Set("x-evenkeel-pin", b.pin)
		}
	}
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	res, err := client.Do(req)
	if err != nil {
		return a.fail("no answer: %v", innermost(err))
	}
	defer res.Body.Close()
	a.status, a.header = res.StatusCode, res.Header
	a.engine, _, _ = strings.Cut(res.Header.Get("x-evenkeel-deployment"), "/")
	a.attempts, _ = strconv.Atoi(res.Header.Get("x-evenkeel-attempts")) // 0 if there was none
	a.read(res, &r)
	return a
}

// raw sends a request and gives the body of its answer as it came, whatever it is.
func (b *Bench) raw(x *balancer, r request, into io.Writer) *answer {
	b.http()
	r.copy = into
	return b.ask(x, r)
}

func (a *answer) fail(format string, args ...any) *answer {
	a.ending, a.why = failed, fmt.Sprintf(format, args...)
	return a
}

// read reads the body and judges it.
func (a *answer) read(res *http.Response, r *request) {
	body := io.Reader(res.Body)
	if r.copy != nil {
		body = io.TeeReader(body, r.copy)
	}
	if r.slow > 0 {
		body = &slowReader{body, r.slow}
	}
	if res.StatusCode == http.StatusOK && strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		a.readStream(body, r)
		return
	}
	text, err := io.ReadAll(body)
	switch {
	case err != nil:
		a.fail("the body broke off: %v", innermost(err))
	case res.StatusCode != http.StatusOK:
		a.code = mock.ErrorCode(text)
		a.ending, a.why = passed, fmt.Sprintf("status %d %s", a.status, a.code)
		if strings.HasPrefix(a.code, "evenkeel_") || a.code == "model_not_found" {
			a.ending = refused
		}
		if a.code == "" {
			a.fail("status %d with a body that is no error: %.80q", a.status, text)
		}
	case !json.Valid(text):
		a.fail("status 200 and a body that is not JSON: %.80q", text)
	default:
		a.ttft = time.Since(a.began)
		if a.who = mock.Who(text); r.first != nil {
			r.first()
		}
	}
}

// slowReader reads 1 KB at a time with a pause before each.
type slowReader struct {
	r     io.Reader
	pause time.Duration
}

func (s *slowReader) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.r.Read(p[:min(len(p), 1024)])
}

// readStream reads events to the end of the body.
func (a *answer) readStream(body io.Reader, r *request) {
	lines := bufio.NewReaderSize(body, 64<<10)
	var seen mock.Seen
	var err error
	for err == nil {
		var line []byte
		line, err = lines.ReadBytes('\n')
		seen.Line(line)
		if a.tokens == 0 && seen.Tokens > 0 {
			a.ttft, a.who = time.Since(a.began), seen.Who
			if r.first != nil {
				r.first()
			}
		}
		if a.tokens = seen.Tokens; r.leave > 0 && a.tokens >= r.leave {
			a.ending = left
			return
		}
	}
	switch {
	case seen.Late:
		a.fail("something came after the end")
	case seen.Failure == mock.NotJSON:
		a.fail("an event that is not JSON")
	case !errors.Is(err, io.EOF):
		a.fail("the stream broke off without an error event: %v", innermost(err))
	case seen.Failure != "":
		a.ending, a.code = told, seen.Failure
	case !seen.Done:
		a.fail("the stream ended cleanly without [DONE] and without an error event")
	case !seen.Finished:
		a.fail("[DONE] without a finish reason")
	}
}

// innermost is the last of a chain of errors: the addresses in the outer ones differ from request to request.
func innermost(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// tally is what became of many requests.
type tally struct {
	answers []*answer
	ended   time.Duration // from the first to the end of the last
}

// of counts the answers that ended in one of these ways.
func (t *tally) of(ends ...ending) (n int) {
	for _, a := range t.answers {
		if slices.Contains(ends, a.ending) {
			n++
		}
	}
	return n
}

func (t *tally) total() int { return len(t.answers) }

// where counts the answers that fit.
func (t *tally) where(fits func(*answer) bool) (n int) {
	for _, a := range t.answers {
		if fits(a) {
			n++
		}
	}
	return n
}

// by counts complete answers by engine.
func (t *tally) by(engine string) int {
	return t.where(func(a *answer) bool { return a.ending == complete && a.who == engine })
}

// example is the first answer that did not end well, in words.
func (t *tally) example() string {
	for _, a := range t.answers {
		if a.ending != complete && a.ending != left {
			return endings[a.ending] + ": " + cmpOr(a.why, a.code) + fmt.Sprintf(" (status %d, %d tokens, attempts %d, after %v)", a.status, a.tokens, a.attempts, a.took.Round(time.Millisecond))
		}
	}
	return "none"
}

// whys counts the answers that did not end well, by what was said.
func (t *tally) whys() map[string]int {
	n := map[string]int{}
	for _, a := range t.answers {
		if a.ending != complete && a.ending != left {
			n[endings[a.ending]+" "+cmpOr(a.why, a.code)]++
		}
	}
	return n
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// quantile of a time over the answers that have it.
func (t *tally) quantile(q float64, of func(*answer) time.Duration) time.Duration {
	var all []time.Duration
	for _, a := range t.answers {
		if d := of(a); d > 0 {
			all = append(all, d)
		}
	}
	return quantile(all, q)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

func ttft(a *answer) time.Duration { return a.ttft }
func took(a *answer) time.Duration { return a.took }

// letDown is after how many clients that were let down a crowd is not sent on: the row has failed.
const letDown = 20

// crowd sends n requests, so many at a time, and waits for all answers.
func (b *Bench) crowd(x *balancer, n, atOnce int, r request) *tally {
	b.http()
	t := &tally{answers: make([]*answer, n)}
	var next, down atomic.Int64
	var crowd sync.WaitGroup
	began := time.Now()
	for range atOnce {
		crowd.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && b.ctx.Err() == nil && down.Load() < letDown; i = next.Add(1) - 1 {
				if t.answers[i] = b.ask(x, r); t.answers[i].ending == failed {
					down.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	t.ended = time.Since(began)
	t.answers = slices.DeleteFunc(t.answers, func(a *answer) bool { return a == nil })
	return t
}

// flow is traffic that goes on while the row does something else: requests begin at a steady rate, whatever becomes of those
// before them.
type flow struct {
	stop  chan struct{}
	done  chan struct{}
	mu    sync.Mutex
	tally tally
}

// flow begins with perSecond requests.
func (b *Bench) flow(x *balancer, perSecond float64, r request) *flow {
	b.http()
	f := &flow{stop: make(chan struct{}), done: make(chan struct{})}
	go func() { // ends with end, or the row
		defer close(f.done)
		var crowd sync.WaitGroup
		defer crowd.Wait()
		began := time.Now()
		timer := time.NewTimer(0)
		defer timer.Stop()
		for i := 1; ; i++ {
			select {
			case <-timer.C:
			case <-f.stop:
				return
			case <-b.ctx.Done():
				return
			}
			crowd.Go(func() {
				a := b.ask(x, r)
				f.mu.Lock()
				f.tally.answers = append(f.tally.answers, a)
				f.mu.Unlock()
			})
			timer.Reset(time.Until(began.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))))
		}
	}()
	b.later(func() { f.end() })
	return f
}

// now is the tally so far.
func (f *flow) now() *tally {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &tally{answers: slices.Clone(f.tally.answers)}
}

// end stops the flow, waits for the last answer and returns all of them.
func (f *flow) end() *tally {
	f.mu.Lock()
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.mu.Unlock()
	<-f.done
	return f.now()
}

// since returns the answers to requests that began at or after a time.
func (t *tally) since(from time.Time) *tally { return t.between(from, time.Now()) }

func (t *tally) between(from, to time.Time) *tally {
	out := &tally{}
	for _, a := range t.answers {
		if !a.began.Before(from) && a.began.Before(to) {
			out.answers = append(out.answers, a)
		}
	}
	return out
}

// flowFor is traffic at a steady rate for a time.
func (b *Bench) flowFor(x *balancer, perSecond float64, d time.Duration, r request) *tally {
	f := b.flow(x, perSecond, r)
	b.pass(d)
	return f.end()
}
