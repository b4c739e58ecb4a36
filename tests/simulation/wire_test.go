package simulation

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/internal/sim"
	"evenkeel/tests/harness"
)

// wire is a fleet over real HTTP.
type wire struct {
	url     string
	client  *http.Client
	bodies  [][]byte // of the requests
	engines []*mock.Engine
}

// start runs the scene's engines and the program before them.
func (s *scene) start(t testing.TB, requests []sim.Request) *wire {
	t.Helper()
	config := "strategy: " + s.strategy + "\nexpose_headers: [deployment]\nendpoints:\n"
	w := &wire{}
	for i, c := range s.engines {
		e, err := mock.New(mock.Config{Name: fmt.Sprint("e", i), Models: []string{"m"}, Engine: &c})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Kill)
		w.engines = append(w.engines, e)
		config += fmt.Sprintf("  %s: {url: %q}\n", e.Name(), e.URL())
	}
	file := filepath.Join(t.TempDir(), "evenkeel.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	b := harness.Evenkeel(t, "--config", file)
	harness.Eventually(t, 10*time.Second, "evenkeel knows all engines", func() bool {
		_, body, err := harness.Get(b.AdminURL + "/deployments")
		return err == nil && strings.Count(string(body), `"id":`) >= len(s.engines)
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	w.url, w.client = b.URL+"/v1/chat/completions", &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	for i := range requests {
		w.bodies = append(w.bodies, body(t, &requests[i], i))
	}
	return w
}

// body is the request as a client sends it: messages of four bytes for each token, as the simulator has it, whose text begins like
// that of another request as far as their blocks are the same, and the exact lengths for the engine.
func body(t testing.TB, r *sim.Request, number int) []byte {
	t.Helper()
	const tokenBytes = 4
	var text []byte
	for _, h := range r.Prompt {
		block := hex.EncodeToString(binary.BigEndian.AppendUint64(nil, h))
		text = append(text, strings.Repeat(block, 1+tokenBytes*r.BlockTokens/len(block))[:tokenBytes*r.BlockTokens]...)
	}
	own := fmt.Sprintf("request %d ", number)
	for len(text) < tokenBytes*r.PromptTokens {
		text = append(text, own...)
	}
	messages := func(n int) []map[string]string {
		return []map[string]string{{"role": "user", "content": string(text[:max(0, n)])}}
	}
	around, err := json.Marshal(messages(0))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{
		"model": "m", "stream": true, "stream_options": map[string]any{"include_usage": true},
		"messages": messages(tokenBytes*r.PromptTokens - len(around)),
		"mock": map[string]any{
			"prompt_tokens": r.PromptTokens, "output_tokens": r.OutputTokens, "prompt_blocks": r.Prompt, "output_blocks": r.Output,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// play sends each request at its time and returns what came of them, or why some of them failed. It writes into the requests when
// they were sent in truth, and the seeds that the balancer gave them.
func (w *wire) play(requests []sim.Request) (answered, error) {
	a := newAnswered(len(requests))
	failed := make([]error, len(requests))
	var clients sync.WaitGroup
	begin := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range requests {
		timer.Reset(time.Until(begin.Add(requests[i].At)))
		<-timer.C
		clients.Go(func() {
			requests[i].At = time.Since(begin)
			if err := w.ask(&a, i, &requests[i]); err != nil {
				failed[i] = fmt.Errorf("request %d: %w", i, err)
			}
		})
	}
	clients.Wait()
	for _, e := range w.engines {
		a.preempted += e.Stats().Preemptions
	}
	return a, errors.Join(failed...)
}

// ask sends a request and reads its answer to the end.
func (w *wire) ask(a *answered, i int, r *sim.Request) error {
	req, err := http.NewRequest(http.MethodPost, w.url, bytes.NewReader(w.bodies[i]))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	sent := time.Now()
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	r.Seed = seedOf(resp.Header.Get("X-Evenkeel-Id"))
	a.deployment[i] = resp.Header.Get("X-Evenkeel-Deployment")
	var seen mock.Seen
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		seen.Line(lines.Bytes())
		if seen.Tokens == 1 && a.ttft[i] == 0 {
			a.ttft[i] = time.Since(sent)
		}
		if _, usage, ok := strings.Cut(lines.Text(), `"cached_tokens":`); ok {
			if _, err := fmt.Sscanf(usage, "%d", &a.cached[i]); err != nil {
				return fmt.Errorf("cached_tokens: %w in %s", err, lines.Text())
			}
		}
	}
	a.whole[i] = time.Since(sent)
	if !seen.Finished || !seen.Done || seen.Failure != "" || seen.Tokens != r.OutputTokens {
		return fmt.Errorf("an answer of %d tokens that is not whole: %+v", r.OutputTokens, seen)
	}
	return nil
}

// seedOf is the seed that a balancer derives from a request's id.
func seedOf(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return bits.ReverseBytes64(h.Sum64())
}
