package drill

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"evenkeel/internal/mock"
)

// Answers that stall, break, or are not as they should be.
var streamRows = []Row{
	{
		ID: "R5", Needs: 1,
		Fault:   "the engine closes in the middle of a stream",
		Promise: "the client gets an error event and no [DONE], in all of 1,000; nothing is repeated",
		run:     cutStreams,
		off:     off{defence: "telling the client of a cut", change: "cut"},
	},
	{
		ID: "R14", Needs: 2,
		Fault:   "an engine does not begin to answer",
		Promise: "another one is asked when first_token (500 ms here) is over, ± 100 ms",
		run:     slowFirst,
		off:     off{defence: "the deadline first_token", settings: settings{"deadlines": settings{"first_token": "60s"}}},
	},
	{
		ID: "R15", Needs: 1,
		Fault:   "an engine falls silent between two tokens",
		Promise: "an error event when between_tokens (500 ms here) is over, ± 1 s scaled to 100 ms; both sides are closed",
		run:     stalls,
		off:     off{defence: "the deadline between_tokens", settings: settings{"deadlines": settings{"between_tokens": "60s"}}},
	},
	{
		ID:      "R16",
		Fault:   "a stream that takes many times longer than any deadline (30 min with --all)",
		Promise: "it arrives to its last token: there is no total timeout",
		run:     longStream,
		off:     off{defence: "having no total timeout", change: "total"},
	},
	{
		ID: "R17", Needs: 2,
		Fault:   "an engine sends nothing but comments",
		Promise: "they are no tokens: first_token (500 ms here) runs on, ± 100 ms",
		run:     comments,
		off:     off{defence: "telling comments from tokens", change: "comments"},
	},
	{
		ID: "R24", Needs: 1,
		Fault:   "answers without usage",
		Promise: "tokens are estimated within 5 %, and marked so",
		run:     noUsage,
		off:     off{defence: "counting tokens", change: "estimate"},
	},
	{
		ID:      "R25",
		Fault:   "odd event framing: CRLF, bare CR, no space, multi-line data, BOM, comments, cuts within a rune",
		Promise: "the client gets every byte as the engine sent it",
		run:     oddFraming,
		off:     off{defence: "passing bytes on untouched", change: "bytes"},
	},
	{
		ID: "R26", Needs: 1,
		Fault:   "one event line of 10 MiB",
		Promise: "it passes; memory grows by less than twice that",
		run:     bigLine, Alone: true,
		off: off{defence: "passing long lines on in parts", change: "big_line"},
	},
	{
		ID:      "R27",
		Fault:   "a gzip bomb that inflates to 256 MB (4 GB with --all)",
		Promise: "passed on packed where the client can read it, else inflated as it goes: memory stays flat",
		run:     gzipBomb, Alone: true,
		off: off{defence: "inflating as it goes", change: "inflate"},
	},
	{
		ID:      "R28",
		Fault:   "an answer whose headers never end",
		Promise: "502; at most 1 MiB of them is read",
		run:     endlessHeaders,
		off:     off{defence: "the limit of an answer's head", change: "head_limit"},
	},
	{
		ID:      "R29",
		Fault:   "a flood of 1xx answers",
		Promise: "502 after a few",
		run:     flood,
		off:     off{defence: "the limit of interim answers", change: "interim_limit"},
	},
}

func cutStreams(_ context.Context, b *Bench) (Measured, error) {
	es := b.fleet(2, mock.Config{OutputTokens: 20})
	b.set(settings{"health_checks": neverTrips})
	x := b.serve()
	n := 0
	all := &tally{}
	for _, after := range []int{3, 7, 12} {
		for _, kind := range []string{"die", "reset"} {
			for _, e := range es {
				b.fault(e, mock.Fault{Kind: kind, After: after})
			}
			share := b.times(170, 170)
			all.answers = append(all.answers, b.crowd(x, share, 16, request{stream: true, tokens: 20}).answers...)
			n += share
		}
	}
	wrong := all.where(func(a *answer) bool { return a.ending != told || a.attempts != 1 })
	found := measured("%d of %d told, %d attempts", all.of(told), n, calls(es...))
	return found, check(wrong == 0 && calls(es...) == int64(n), "%d of %d streams did not end with an error event after one attempt: %s", wrong, n, all.wrong(told))
}

// wrong is the first answer that did not end so, in words.
func (t *tally) wrong(want ending) string {
	for _, a := range t.answers {
		if a.ending != want {
			return fmt.Sprintf("%s: %s (status %d, %d tokens, attempts %d, after %v)", endings[a.ending], cmpOr(a.why, a.code), a.status, a.tokens, a.attempts, a.took.Round(time.Millisecond))
		}
	}
	return "none"
}

const (
	scaledLimit = 500 * time.Millisecond // stands for first_token and between_tokens
	scaledSlack = 100 * time.Millisecond
)

// movesAfter demands that streams that met the fault of engine a moved to b when first_token was over.
func (b *Bench) movesAfter(f mock.Fault) (Measured, error) {
	b.set(settings{"strategy": "round_robin", "deadlines": settings{"first_token": scaledLimit.String()}, "health_checks": neverTrips})
	es := b.fleet(2, mock.Config{})
	x := b.serve()
	b.fault(es[0], f)
	t := b.crowd(x, 12, 6, request{stream: true, limit: 5 * time.Second})
	var waits []time.Duration
	for _, a := range t.answers {
		if a.who != es[0].Name() && a.ttft > scaledLimit/2 {
			waits = append(waits, a.ttft)
		}
	}
	least, most := quantile(waits, 0), quantile(waits, 1)
	found := measured("%d moved, first token after %v to %v", len(waits), least.Round(time.Millisecond), most.Round(time.Millisecond))
	switch {
	case t.of(complete) < t.total():
		return found, brokenf("%d of %d streams were not answered: %s", t.total()-t.of(complete), t.total(), t.example())
	case len(waits) == 0:
		return found, brokenf("no stream waited for the limit and moved")
	}
	return found, check(least >= scaledLimit-scaledSlack && most <= scaledLimit+scaledSlack, "moved after %v to %v, want %v ± %v", least, most, scaledLimit, scaledSlack)
}

func slowFirst(_ context.Context, b *Bench) (Measured, error) {
	return b.movesAfter(mock.Fault{Kind: "hang"})
}

func comments(_ context.Context, b *Bench) (Measured, error) {
	return b.movesAfter(mock.Fault{Kind: "comments", After: 1000, Delay: mock.Duration(20 * time.Millisecond)})
}

func stalls(_ context.Context, b *Bench) (Measured, error) {
	b.set(settings{"deadlines": settings{"between_tokens": scaledLimit.String()}})
	es := b.fleet(1, mock.Config{OutputTokens: 20})
	x := b.serve()
	b.fault(es[0], mock.Fault{Kind: "stall", After: 4})
	t := b.crowd(x, 8, 8, request{stream: true, tokens: 20, limit: 5 * time.Second})
	least, most := t.quantile(0, took), t.quantile(1, took)
	found := measured("%d of %d told after %v to %v", t.of(told), t.total(), least.Round(time.Millisecond), most.Round(time.Millisecond))
	if t.of(told) < t.total() {
		return found, brokenf("not all were told: %s", t.wrong(told))
	}
	if !b.until(time.Second, func() bool { return es[0].Stats().Running == 0 }) {
		return found, brokenf("the engine still has %d requests", es[0].Stats().Running)
	}
	return found, check(least >= scaledLimit-scaledSlack && most <= scaledLimit+scaledSlack, "told after %v to %v, want %v ± %v", least, most, scaledLimit, scaledSlack)
}

func longStream(_ context.Context, b *Bench) (Measured, error) {
	limit, step, tokens := 400*time.Millisecond, 100*time.Millisecond, 40
	if b.long {
		limit, step, tokens = 10*time.Second, time.Second, 1800
	}
	all := limit.String()
	b.set(settings{"deadlines": settings{"deadline": all, "first_token": all, "between_tokens": all, "response": all}})
	b.fleet(1, mock.Config{InterToken: step, OutputTokens: tokens})
	x := b.serve()
	t := b.crowd(x, 10, 10, request{stream: true, tokens: tokens, limit: 2 * time.Duration(tokens) * step})
	return measured("%d of %d complete after %v, with deadlines of %v", t.of(complete), t.total(), t.ended.Round(100*time.Millisecond), limit),
		check(t.of(complete) == t.total() && t.answers[0].tokens == tokens, "not all arrived: %s", t.example())
}

func noUsage(_ context.Context, b *Bench) (Measured, error) {
	const tokens = 200
	es := b.fleet(1, mock.Config{OutputTokens: tokens})
	x := b.serve()
	r := request{stream: true, tokens: tokens, prompt: strings.Repeat("a usual prompt of some length. ", 200)}
	b.crowd(x, 20, 4, r) // their usage tells how many bytes a token has
	before := es[0].Stats().PromptTokens
	b.fault(es[0], mock.Fault{Kind: "no_usage"})
	a := b.crowd(x, 1, 1, r).answers[0]
	if a.ending != complete {
		return "", brokenf("the answer is not complete: %s", a.why)
	}
	e := x.explain(a.header.Get("x-evenkeel-id"))
	if len(e.Attempts) != 1 {
		b.stopf("%d attempts are remembered", len(e.Attempts))
	}
	o, in := e.Attempts[0].Outcome, es[0].Stats().PromptTokens-before
	found := measured("output %d for %d, input %d for %d, reported: %v", o.OutputTokens, tokens, o.InputTokens, in, o.TokensReported)
	near := func(got, want float64) bool { return got >= 0.95*want && got <= 1.05*want }
	return found, check(near(float64(o.OutputTokens), tokens) && near(float64(o.InputTokens), float64(in)) && !o.TokensReported, "not within 5 %%, or not marked as an estimate: %s", found)
}

// oddStreams are the bodies of streams that people have met.
func oddStreams() [][]byte {
	event := func(text, end string) string {
		return `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"` + model + `","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}` + end
	}
	stop := `data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"` + model + `","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	whole := func(end string) string {
		return event("größe 東京 🙂", end) + event("two", end) + stop + end + "data: [DONE]" + end
	}
	bom := "\ufeff"
	return [][]byte{
		[]byte(whole("\r\n\r\n")),
		[]byte(whole("\r\r")),
		[]byte(bom + whole("\n\n")),
		[]byte(strings.ReplaceAll(whole("\n\n"), "data: ", "data:")),
		[]byte(": hello\n\n" + event("a", "\n\n") + ":\n\nretry: 10\nx-unknown: 1\nid: 7\n" + event("b", "\n\n") + stop + "\n\ndata: [DONE]\n\n"),
		[]byte(strings.ReplaceAll(whole("\n\n"), `,"choices"`, ",\ndata: \"choices\"")), // JSON over several data lines
		[]byte("event: message\n" + event("a", "\n\n") + "event:message\n" + stop + "\r\n\r\ndata: [DONE]\n\n"),
	}
}

func oddFraming(_ context.Context, b *Bench) (Measured, error) {
	streams := oddStreams()
	f := b.fake("a", func(c *fakeConn, n int) {
		text := streams[(n-1)%len(streams)]
		random := rand.New(rand.NewPCG(uint64(n), 1))
		c.sse()
		for rest := text; len(rest) > 0; { // cut anywhere, within runes and line ends too
			size := min(len(rest), 1+random.IntN(40))
			if c.chunk(rest[:size]) != nil {
				return
			}
			rest = rest[size:]
		}
		c.end()
	})
	b.serveBy("a", f.url())
	x := b.serve()
	rounds := b.times(10, 1000)
	differ, first := 0, ""
	for i := range rounds * len(streams) {
		var got bytes.Buffer
		b.raw(x, request{stream: true}, &got)
		if want := streams[i%len(streams)]; !bytes.Equal(got.Bytes(), want) {
			if differ++; differ == 1 {
				first = fmt.Sprintf("%q in place of %q", got.Bytes(), want)
			}
		}
	}
	n := rounds * len(streams)
	return measured("%d of %d differ", differ, n), check(differ == 0, "%d of %d streams did not arrive as they were sent; the first: %s", differ, n, first)
}

// grows runs do and returns by how much the balancer's memory grew at most meanwhile.
func (b *Bench) grows(x *balancer, do func()) float64 {
	before := x.resident()
	done := make(chan struct{})
	worst := make(chan float64, 1)
	go func() { // ends with do
		most := before
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, x.resident())
			select {
			case <-done:
				worst <- most
				return
			case <-tick.C:
			}
		}
	}()
	do()
	close(done)
	return <-worst - before
}

func bigLine(_ context.Context, b *Bench) (Measured, error) {
	const size = 10 * mib
	es := b.fleet(1, mock.Config{})
	x := b.serve()
	b.crowd(x, 200, 8, request{stream: true}) // warm
	b.fault(es[0], mock.Fault{Kind: "big_event", Size: size})
	var a *answer
	var n countingWriter
	grown := b.grows(x, func() { a = b.raw(x, request{stream: true}, &n) })
	found := measured("%.1f MiB arrived, memory grew by %.1f MiB", float64(n)/mib, grown/mib)
	if a.ending != complete || n < size {
		return found, brokenf("the event did not arrive: %s %s", endings[a.ending], a.why)
	}
	return found, check(grown < 2*size, "memory grew by %.1f MiB for a line of %d MiB", grown/mib, size/mib)
}

// countingWriter counts what it drops.
type countingWriter int64

func (w *countingWriter) Write(p []byte) (int, error) {
	*w += countingWriter(len(p))
	return len(p), nil
}

// bomb packs n bytes of spaces, which are valid JSON before a value.
func bomb(n int) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is a valid one
	blank := bytes.Repeat([]byte(" "), mib)
	for range n / mib {
		w.Write(blank) // into memory
	}
	io.WriteString(w, chatAnswer)
	w.Close()
	return b.Bytes()
}

func gzipBomb(_ context.Context, b *Bench) (Measured, error) {
	const most = 48 * mib
	packed := bomb(b.times(256, 4096) * mib)
	f := b.fake("a", func(c *fakeConn, _ int) {
		c.close = true
		if c.say("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n", len(packed)) != nil {
			return
		}
		if _, err := c.Write(packed); err == nil {
			c.f.whole.Add(1)
		}
		c.wait(30 * time.Second)
	})
	b.serveBy("a", f.url())
	x := b.serve()
	var got countingWriter
	reads := b.grows(x, func() { b.raw(x, request{header: map[string]string{"Accept-Encoding": "gzip"}}, &got) })
	inflated := b.grows(x, func() { b.drain(x, request{}) })
	found := measured("%d KiB passed on packed: memory +%.1f MiB; inflated: +%.1f MiB", got>>10, reads/mib, inflated/mib)
	if int(got) != len(packed) {
		return found, brokenf("a client that reads gzip got %d bytes of %d", got, len(packed))
	}
	return found, check(reads < most && inflated < most, "memory grew by %.0f and %.0f MiB, at most %d", reads/mib, inflated/mib, most/mib)
}

// drain reads an answer without keeping it.
func (b *Bench) drain(x *balancer, r request) {
	r.model = b.asked()
	req, err := http.NewRequestWithContext(b.ctx, http.MethodPost, x.url+"/v1/chat/completions", bytes.NewReader(r.text()))
	b.must(err)
	req.Header.Set("Content-Type", "application/json")
	b.score.begin()
	defer b.score.running.Add(-1)
	res, err := b.http().Do(req)
	if err != nil {
		return
	}
	b.score.answered.Add(1)
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // it may well be cut
}

func endlessHeaders(_ context.Context, b *Bench) (Measured, error) {
	f := b.fake("a", func(c *fakeConn, _ int) {
		c.close = true
		c.say("HTTP/1.1 200 OK\r\n")
		for i := 0; c.f.bytes.Load() < 16*mib; i++ {
			if c.say("x-more-%d: %s\r\n", i, strings.Repeat("y", 100)) != nil {
				return
			}
		}
	})
	return b.cutOff(f, mib)
}

func flood(_ context.Context, b *Bench) (Measured, error) {
	f := b.fake("a", func(c *fakeConn, _ int) {
		c.close = true
		for i := 0; i < 400000; i++ {
			if c.say("HTTP/1.1 103 Early Hints\r\nlink: </%d>\r\n\r\n", i) != nil {
				return
			}
		}
		c.json(http.StatusOK, chatAnswer)
	})
	return b.cutOff(f, mib)
}

// cutOff demands a 502 for what an endpoint sends, of which no more than most bytes are taken in each attempt. What the
// kernel holds of them is counted too.
func (b *Bench) cutOff(f *fake, most int64) (Measured, error) {
	b.set(settings{"retry": settings{"max_attempts": 1}})
	b.serveBy("a", f.url())
	x := b.serve()
	before := f.bytes.Load()
	a := b.crowd(x, 1, 1, request{limit: 10 * time.Second}).answers[0]
	b.until(time.Second, func() bool { return f.open.Load() == 0 })
	took := f.bytes.Load() - before
	found := measured("status %d after %d KiB", a.status, took>>10)
	return found, check(a.status == http.StatusBadGateway && took <= most, "status %d (%s %s) after %d KiB, want 502 and at most %d", a.status, endings[a.ending], a.why, took>>10, most>>10)
}
