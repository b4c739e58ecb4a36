package app

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/config"
	"evenkeel/internal/exchange"
	"evenkeel/internal/ledger"
	"evenkeel/internal/mock"
	"evenkeel/internal/strategy"
	"evenkeel/internal/trace"
)

// recorded reads a trace: its entries, and the chains of their prompts.
func recorded(t *testing.T, path string) (entries []trace.Entry, chains [][]uint64) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, all := trace.NewReader(f, path), trace.NewChains()
	for {
		var e trace.Entry
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			return entries, chains
		}
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
		chains = append(chains, all.Of(r.Header().Key, &e.Prefix).Append(nil))
	}
}

// long is a prompt of some blocks, which must not be seen either.
func long(blocks int) string {
	var b strings.Builder
	for i := 0; b.Len() < 256*blocks; i++ {
		fmt.Fprintf(&b, "%s number %d. ", prompt, i)
	}
	return b.String()[:256*blocks]
}

func ask(w *world, text, extra string, headers ...string) answer {
	return w.do(http.MethodPost, w.url+"/v1/chat/completions", fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]%s}`, text, extra), headers...)
}

// What traffic leaves in the trace, over a reload and from one process to the next: sizes, times, decisions, what prompts
// share; no text and no key.
func TestTrace(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}})
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	settings := fmt.Sprintf("trace: {path: %s}\nvirtual_keys: [{name: support, sha256: %x}]\nendpoints: {e: {url: %q, kind: vllm, models: [m], api_key: %s}}\n",
		path, sha256.Sum256([]byte(clientKey)), e.URL(), "${UPSTREAM_KEY}")
	key := []string{"Authorization", "Bearer " + clientKey}
	good := func(a answer) {
		t.Helper()
		if a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}

	w := start(t, parse(t, settings))
	good(ask(w, long(5), `,"max_tokens":7`, append(key, "X-Evenkeel-Session", canary+"session")...))
	w.whole(w.stream("m", key...))
	w.reload("deadlines: {response: 10s}\n" + settings)
	good(ask(w, long(9), "", append(key, "X-Session-Id", canary+"session", "X-Stainless-Retry-Count", "1")...))
	if a := ask(w, long(5), ""); a.status != http.StatusUnauthorized { // a stranger
		t.Errorf("without a key: %d", a.status)
	}
	if a := w.chat("none", key...); a.status != http.StatusNotFound {
		t.Errorf("an unknown model: %d", a.status)
	}
	w.await("what was written is counted", func() bool { return w.metric("evenkeel_trace_exchanges_total", `result="written"`) == 3 })
	w.close()
	next := start(t, parse(t, settings))
	good(ask(next, long(5), "", key...))
	next.close()

	for _, file := range []string{path, path + ".key"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		w.clean(file, string(text))
		if bytes.Contains(text, []byte("hello")) || bytes.Contains(text, []byte("number")) {
			t.Errorf("%s holds text of a prompt or an answer:\n%s", file, text)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", file, info.Mode(), err)
		}
	}
	entries, chains := recorded(t, path)
	if len(entries) != 4 {
		t.Fatalf("%d exchanges were recorded, want 4: %+v", len(entries), entries)
	}
	for i, e := range entries {
		a := e.Last()
		if a == nil || a.Deployment != "e/m" || a.Strategy != strategy.Default || a.Eligible != 1 || a.Input == 0 || a.Output == 0 || a.Estimated ||
			a.Took <= 0 || a.Took > e.Total || e.Total > time.Minute || time.Since(e.At) > time.Hour || e.Tenant != "support" || e.Model != "m" ||
			e.API != "chat" || e.Result != exchange.Complete || e.Status != 200 || e.ID == "" || e.Bytes == 0 {
			t.Errorf("exchange %d: %+v", i, e)
		}
		if want := []int{5, 0, 9, 5}[i]; len(chains[i]) != want {
			t.Errorf("exchange %d has %d blocks, want %d", i, len(chains[i]), want)
		}
	}
	if e := entries[1]; !e.Stream || e.First == 0 || e.Last().TTFT == 0 {
		t.Errorf("the streamed one: %+v", e)
	}
	if entries[0].MaxOutput != 7 || entries[0].Stream || entries[2].Retry != 1 {
		t.Errorf("%+v, %+v", entries[0], entries[2])
	}
	if entries[0].Session == 0 || entries[2].Session != entries[0].Session || entries[1].Session != 0 {
		t.Errorf("sessions %d, %d and %d", entries[0].Session, entries[1].Session, entries[2].Session)
	}
	for _, i := range []int{2, 3} { // the latter in another process
		if chains[i][4] != chains[0][4] {
			t.Errorf("exchange %d has another chain for the same text", i)
		}
	}
}

// A trace that cannot be written keeps nobody from being served.
func TestTraceThatCannotBeWritten(t *testing.T) {
	e := engine(t, mock.Config{Name: "e", Models: []string{"m"}})
	path := filepath.Join(t.TempDir(), "missing", "trace.jsonl")
	c := parse(t, fmt.Sprintf("trace: {path: %s}\nendpoints: {e: {url: %q}}\n", path, e.URL()))
	w := start(t, c)
	w.serves("m")
	if a := w.chat("m"); a.status != http.StatusOK {
		t.Errorf("%d %s", a.status, a.body)
	}
	w.logged("the trace cannot be written; requests are served, and not recorded", path)
	w.logged("the trace gets a key that is not kept: its prompts cannot be compared with those recorded before or after", path+".key")
	w.await("what was lost is counted", func() bool { return w.metric("evenkeel_trace_exchanges_total", `result="failed"`) == 1 })
}

// Beside what can be no trace no key is left; one that was there is used.
func TestTraceThatCanBeNoneHasNoKey(t *testing.T) {
	for _, kept := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "trace.jsonl")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if kept {
			if _, err := ledger.OpenTraceKey(path + ".key"); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		r, key, err := recorder(config.Trace{Path: path, MaxMiB: 1}, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || r == nil || key == nil {
			t.Errorf("%v, %v, %v", r, key, err)
		}
		if _, err := os.Stat(path + ".key"); (err == nil) != kept {
			t.Errorf("a key was there: %v, then %v", kept, err)
		}
		if warned := strings.Contains(log.String(), "a key that is not kept"); warned == kept {
			t.Errorf("a key was there: %v; the log says %s", kept, log.String())
		}
	}
}

func TestTraceWarning(t *testing.T) {
	dir := t.TempDir()
	f := func(path, want string) {
		t.Helper()
		c := parse(t, fmt.Sprintf("trace: {path: %s}\nendpoints: {e: {url: 'http://127.0.0.1:1'}}\n", path))
		var got []string
		for _, w := range Warnings(c) {
			got = append(got, w.String())
		}
		switch text := strings.Join(got, "\n"); {
		case want == "" && text == "":
		case want == "" || len(got) != 1 || !strings.HasPrefix(text, "test.yaml:3:9: trace.path: ") || !strings.Contains(text, want) ||
			!strings.HasSuffix(text, "; requests would be served, and not recorded"):
			t.Errorf("%s: warned %q, want %q", path, text, want)
		}
	}
	file := filepath.Join(dir, "trace.jsonl")
	f(file, "")
	f(filepath.Join(dir, "missing", "trace.jsonl"), "no such file or directory")
	f(dir, "is not a regular file")
	f(filepath.Join(os.Args[0], "trace.jsonl"), "not a directory")
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("looking made %v, %v", files, err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f(file, "")
	if err := os.WriteFile(file+".key", []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	f(file, "trace.jsonl.key holds 5 characters, expected 64 hexadecimal digits; move it away, and a new key is made")
	if os.Geteuid() == 0 {
		return // may write anywhere
	}
	if err := os.Chmod(file, 0o400); err != nil {
		t.Fatal(err)
	}
	f(file, "permission denied")
	closed := filepath.Join(dir, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	f(filepath.Join(closed, "trace.jsonl"), "no file can be made in")
}
