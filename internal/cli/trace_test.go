//go:build linux

package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/mock"
	"evenkeel/internal/trace"
)

// Two processes record in one file while one hands over to the other: nothing is lost or told twice, a prompt that was asked in both
// is the same, and simulate plays it.
func TestTraceOverAHandOver(t *testing.T) {
	e, err := mock.New(mock.Config{Models: []string{"m"}, OutputTokens: 40, InterToken: 25 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	dir := t.TempDir()
	path := filepath.Join(dir, "trace.jsonl")
	file := filepath.Join(dir, "evenkeel.yaml")
	text := fmt.Sprintf("trace: {path: trace.jsonl}\nendpoints: {a: {url: %q, kind: vllm, models: [m]}}\n", e.URL())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", file)
	ask := func(more string) {
		t.Helper()
		body := fmt.Sprintf(`{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"%s %s"}]}`, strings.Repeat(prompt+" ", 40), more)
		if status, answer := do(http.MethodPost, p.url+"/v1/chat/completions", body); status != http.StatusOK {
			t.Fatalf("%d %s", status, answer)
		}
	}
	ask("first")
	// It runs in the old process until after the hand-over.
	res, err := http.Post(p.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"`+prompt+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	next := p.upgrade(p.cmd.Process.Pid)
	ask("second")
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections() // the old process waits for it
	p.gone(p.cmd.Process.Pid)
	ask("third")
	if err := syscall.Kill(next, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.gone(next)

	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(recorded), canary) {
		t.Errorf("the trace holds text of a prompt:\n%s", recorded)
	}
	r, chains := trace.NewReader(strings.NewReader(string(recorded)), path), trace.NewChains()
	ids, streams := map[string]bool{}, 0
	var first []uint64
	for {
		var x trace.Entry
		err := r.Next(&x)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ids[x.ID] = true
		if x.Stream {
			streams++
			continue
		}
		chain := chains.Of(r.Header().Key, &x.Prefix).Append(nil)
		if first == nil {
			first = chain
		}
		if len(chain) < 2 || chain[1] != first[1] {
			t.Errorf("the prompt of %s has the chain %v, that of the first one %v", x.ID, chain, first)
		}
	}
	if len(ids) != 4 || streams != 1 || strings.Count(string(recorded), "\n") != 4+2 {
		t.Errorf("4 requests, one of them streamed, by two processes left\n%s", recorded)
	}
	code, out, errs := command("simulate", "--trace", path, "--strategy", "round_robin", "--deployments", "1", "--burn-in", "0.001", "--json")
	if code != exitOK || !strings.Contains(out, `"strategy": "round_robin"`) {
		t.Errorf("simulate: exit %d\n%s%s", code, out, errs)
	}
}
