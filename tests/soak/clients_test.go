//go:build !race

package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// kinds are the clients: how many of each there are, and one request of theirs.
var kinds = []struct {
	count int
	once  func(*world, context.Context, *rand.Rand)
}{
	{24, (*world).small},
	{16, (*world).stream},
	{8, (*world).leaving},
	{2, (*world).bigPrompt},
	{2, (*world).turnedAway},
}

// startClients lets all clients make requests, one after another, until ctx ends.
func (w *world) startClients(ctx context.Context, crowd *sync.WaitGroup) {
	for i, k := range kinds {
		for j := range k.count {
			random := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			crowd.Go(func() {
				for ctx.Err() == nil {
					k.once(w, ctx, random)
				}
			})
		}
	}
}

// post sends a request that no other one equals, so that what is remembered by prompt, user or session would grow.
func (w *world) post(ctx context.Context, model, prompt, more string) (*http.Response, error) {
	n := w.serial.Add(1)
	body := fmt.Sprintf(`{"model":%q,"user":"user-%d","messages":[{"role":"system","content":"%d"},{"role":"user","content":%q}]%s}`, model, n, n, prompt, more)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Session-Id", fmt.Sprint("session-", n))
	return w.client.Do(r)
}

const streaming = `,"stream":true,"stream_options":{"include_usage":true}`

// whole demands an answer that is complete.
func (w *world) whole(ctx context.Context, model, prompt, more, end string) {
	res, err := w.post(ctx, model, prompt, more)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	switch {
	case ctx.Err() != nil: // the soak is over
	case err != nil:
		w.fail("%s: %v", model, err)
	case res.StatusCode != http.StatusOK || !bytes.HasSuffix(body, []byte(end)):
		w.fail("%s: status %d, %.300s", model, res.StatusCode, body)
	default:
		w.complete.Add(1)
	}
}

func (w *world) small(ctx context.Context, _ *rand.Rand) { w.whole(ctx, "fast", "Which way?", "", "}") }

func (w *world) stream(ctx context.Context, random *rand.Rand) {
	model := "fast"
	if random.IntN(2) == 0 {
		model = "paced"
	}
	w.whole(ctx, model, "Which way?", streaming, "data: [DONE]\n\n")
}

// bigPrompt sends up to 1 MB, in sizes that differ.
func (w *world) bigPrompt(ctx context.Context, random *rand.Rand) {
	w.whole(ctx, "fast", strings.Repeat("Keep her head\nto the \"wind\". ", 1+random.IntN(33_000)), "", "}")
}

// leaving closes its connection somewhere in a stream: before the answer, or after some of it.
func (w *world) leaving(ctx context.Context, random *rand.Rand) {
	own, leave := context.WithTimeout(ctx, time.Duration(random.IntN(40))*time.Millisecond)
	defer leave()
	res, err := w.post(own, "paced", "Which way?", streaming)
	if err == nil {
		_, err = io.ReadFull(res.Body, make([]byte, 1+random.IntN(3000)))
		leave()
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			w.fail("a client that would have left: status %d", res.StatusCode)
			return
		}
	}
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, io.ErrUnexpectedEOF) {
		w.left.Add(1)
		return
	}
	w.fail("a client that would have left: %v", err)
}

// turnedAway asks for what cannot be had.
func (w *world) turnedAway(ctx context.Context, random *rand.Rand) {
	model, more, want := fmt.Sprint("model-", w.serial.Load()), "", http.StatusNotFound
	if random.IntN(2) == 0 {
		model, more, want = "fast", `,"model":"slow"`, http.StatusBadRequest // twice
	}
	res, err := w.post(ctx, model, "Which way?", more)
	switch {
	case ctx.Err() != nil: // the soak is over
		if err == nil {
			res.Body.Close()
		}
		return
	case err != nil:
		w.fail("a request for %q: %v", model, err)
		return
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != want {
		w.fail("a request for %q: status %d, want %d; %v, %.300s", model, res.StatusCode, want, err, body)
		return
	}
	w.turned.Add(1)
}
