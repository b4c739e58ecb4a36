// Package realengine runs real llama.cpp servers on loopback, with models that
// it writes itself.
package realengine

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"evenkeel/tests/harness"
	"evenkeel/tests/realengine/gguf"
)

// ModelName is the model that the servers report. They accept any name.
const ModelName = "random-llama"

// startLimit is generous: on an idle machine a server is ready in half a
// second.
const startLimit = 60 * time.Second

// Options say how the servers run. Zero values take the default.
type Options struct {
	Model   gguf.Model // default gguf.Tiny(1)
	Slots   int        // requests decoded at the same time by one server; default 4
	Context int        // tokens per slot; default 4096
	APIKey  string     // that clients must send; default none

	// HostCache is the memory in MiB for what slots held before others took them; default 64, negative for none.
	HostCache int
	// Pinned gives each server a processor of its own, as far as there are so many.
	Pinned bool
}

// Server is one llama.cpp server.
type Server struct {
	URL     string // http://127.0.0.1:PORT
	apiKey  string
	command []string // without the port
	port    string
	process *harness.Process
}

// Start runs n servers until the test ends and returns when all are ready. On
// a machine without the Python packages the test is skipped, or fails on CI.
func Start(t testing.TB, n int, opts Options) []*Server {
	t.Helper()
	if opts.Model == (gguf.Model{}) {
		opts.Model = gguf.Tiny(1)
	}
	if opts.Slots == 0 {
		opts.Slots = 4
	}
	if opts.Context == 0 {
		opts.Context = 4096
	}
	if opts.HostCache == 0 {
		opts.HostCache = 64
	}
	command := []string{
		harness.Python(t), filepath.Join(harness.Root(t), "tests", "realengine", "server.py"),
		"--model", writeModel(t, opts.Model), "--alias", ModelName, "--api-key", opts.APIKey,
		"--slots", strconv.Itoa(opts.Slots), "--ctx", strconv.Itoa(opts.Context),
		"--cache-ram", strconv.Itoa(max(0, opts.HostCache)), "--port",
	}
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = &Server{apiKey: opts.APIKey, command: command, port: "0"}
		if opts.Pinned {
			servers[i].command = slices.Concat(pin(t, i), command)
		}
		servers[i].start(t)
	}
	for _, s := range servers {
		s.awaitReady(t)
	}
	return servers
}

// pin returns what stands before the command of a server so that it runs on processor i.
func pin(t testing.TB, i int) []string {
	t.Helper()
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skipf("servers cannot be pinned to processors: %v", err)
	}
	return []string{"taskset", "-c", strconv.Itoa(i % runtime.NumCPU())}
}

// Kill ends the server at once, as a crash would.
func (s *Server) Kill() { s.process.Kill() }

// Restart starts a killed server again, on the same port and with an empty
// cache.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.start(t)
	s.awaitReady(t)
}

func (s *Server) start(t testing.TB) {
	t.Helper()
	args := append(slices.Clone(s.command), s.port)
	s.process = harness.Start(t, exec.Command(args[0], args[1:]...))
}

var ready = regexp.MustCompile(`^ready (\d+)$`)

func (s *Server) awaitReady(t testing.TB) {
	t.Helper()
	s.port = s.process.Await(t, ready, startLimit)[1]
	s.URL = "http://127.0.0.1:" + s.port
}

// BusySlots returns how many requests the server is working on.
func (s *Server) BusySlots() (int, error) {
	var slots []struct {
		Busy bool `json:"is_processing"`
	}
	body, err := s.get("/slots")
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(body, &slots); err != nil {
		return 0, fmt.Errorf("%s/slots: %w", s.URL, err)
	}
	busy := 0
	for _, slot := range slots {
		if slot.Busy {
			busy++
		}
	}
	return busy, nil
}

// GeneratedTokens returns how many tokens the server has generated in all
// finished requests.
func (s *Server) GeneratedTokens() (int, error) {
	body, err := s.get("/metrics")
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^llamacpp:tokens_predicted_total (\d+)$`).FindSubmatch(body)
	if m == nil {
		return 0, fmt.Errorf("no tokens_predicted_total in %s/metrics", s.URL)
	}
	return strconv.Atoi(string(m[1]))
}

func (s *Server) get(path string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodGet, s.URL+path, nil)
	if err != nil {
		return nil, err
	}
	if s.apiKey != "" {
		req.Header.Set("Authorization", "Bearer "+s.apiKey)
	}
	req.Close = true
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", req.URL, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func writeModel(t testing.TB, m gguf.Model) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "model.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.Write(f); err != nil {
		t.Fatalf("write %s: %v", f.Name(), err)
	}
	return f.Name()
}
