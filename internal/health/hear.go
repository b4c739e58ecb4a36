package health

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"evenkeel/internal/route"
	"evenkeel/internal/upstream"
)

const (
	signalTimeout = 2 * time.Second // for one page, to its end
	noSignals     = 5 * time.Minute // until who has no such page is asked again
	maxSignals    = 2 << 20         // of a page, in bytes
	signalShare   = 10              // times as long as an answer takes pass at least until the next: engines pay for each
)

// Hearing is a question for an engine's signals that was answered, or not.
type Hearing struct {
	Endpoint string
	Verdict  Verdict // OK, Failed, or Unknown: it has no such page
	Reason   string  // why it is not OK, of a fixed set
	Changed  bool    // the one before came to another verdict
	// Dispute is set if its signals are ignored from now on, or believed again.
	Dispute *route.Dispute
}

// buffers hold pages while they are read.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// listen asks an endpoint for one of its kind's pages.
func listen(ctx context.Context, e *Endpoint, page signalPage, t *told) Result {
	ctx, cancel := context.WithTimeout(ctx, signalTimeout)
	defer cancel()
	res, stop, err := send(ctx, e.Caller, &upstream.Request{Method: http.MethodGet, Path: page.path, Header: e.Header})
	if err != nil {
		return lost(ctx, err)
	}
	defer stop()
	defer res.Body.Close()
	b := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(b)
	b.Reset()
	n, err := io.Copy(b, io.LimitReader(res.Body, maxSignals+1))
	switch status := res.StatusCode; {
	case err != nil:
		return lost(ctx, err)
	case status == http.StatusTooManyRequests || status >= 500 && status != http.StatusNotImplemented:
		return Result{Verdict: Failed, Reason: complains}
	case status != http.StatusOK || n > maxSignals || !page.read(b.Bytes(), t):
		return Result{Verdict: Unknown, Reason: noPage}
	}
	return Result{Verdict: OK}
}

// hear asks an endpoint for its signals and tells the Router.
func (c *Checker) hear(ctx context.Context, k key, e *Endpoint, page int) {
	began := time.Now()
	t := told{Signal: route.Untold(began)}
	candidates := signalPages[e.Kind.Name]
	r := listen(ctx, e, candidates[page], &t)
	now := time.Now()
	c.mu.Lock()
	target := c.ended(ctx, k)
	if target == nil {
		c.mu.Unlock()
		return
	}
	h := Hearing{Endpoint: e.Name, Verdict: r.Verdict, Reason: r.Reason, Changed: r.Verdict != target.verdict}
	switch pages := signalPages[target.endpoint.Kind.Name]; r.Verdict {
	case OK:
		h.Dispute = c.tell(now, target, &t)
	case Unknown:
		h.Changed = h.Changed && page+1 >= len(candidates)
		if target.page = page + 1; target.page >= len(pages) {
			target.page, target.due = 0, now.Add(noSignals)
		}
	}
	if h.Changed {
		target.verdict = r.Verdict
	}
	if rest := now.Add(signalShare * now.Sub(began)); rest.After(target.due) {
		target.due = rest
	}
	c.mu.Unlock()
	c.heard(h)
	c.wake()
}

// tell tells the Router what an engine said: of all it serves, of each of its ranks or, where it says which models it has in memory, of each.
func (c *Checker) tell(now time.Time, t *target, s *told) (dispute *route.Dispute) {
	if t.endpoint.Ranks > 0 {
		for i, rank := range s.ranks[:min(len(s.ranks), t.endpoint.Ranks)] {
			rank.Rank = strconv.Itoa(i)
			dispute = cmp.Or(c.router.Signal(now, t.scope(), "", rank), dispute)
		}
		return dispute
	}
	if s.loaded == nil {
		return c.router.Signal(now, t.scope(), "", s.Signal)
	}
	for i := range t.endpoint.Deployments {
		d, each := &t.endpoint.Deployments[i], s.Signal
		each.Unloaded = !slices.Contains(s.loaded, d.Model) && !slices.Contains(s.loaded, d.Model+":latest")
		c.router.Signal(now, t.scope(), d.Model, each)
	}
	return nil
}
