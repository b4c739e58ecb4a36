package cli

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// asProgram makes this test binary run as evenkeel: with signals and an exit code of its own, and with the race
// detector if the tests have it.
const asProgram = "EVENKEEL_TEST_AS_PROGRAM"

func init() {
	if os.Getenv(asProgram) != "" {
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	}
}

const (
	patience = 20 * time.Second // bounds waits for what happens in real time; reached only when a test fails

	// Texts that the program is given and must never show.
	canary      = "canary-"
	clientKey   = canary + "client-key-91ab"
	upstreamKey = canary + "upstream-key-c07e"
	prompt      = canary + "prompt-5d1f"
)

// program is a running evenkeel.
type program struct {
	t          *testing.T
	cmd        *exec.Cmd
	out        output
	ended      chan struct{}
	url, admin string // once it serves
}

// run starts evenkeel; it is killed when the test ends, unless it has ended.
func run(t *testing.T, args ...string) *program {
	t.Helper()
	return runAs(t, func(*exec.Cmd) {}, args...)
}

// runAs is run with a command that prepare has changed.
func runAs(t *testing.T, prepare func(*exec.Cmd), args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	prepare(p.cmd)
	p.cmd.Env = append(os.Environ(), asProgram+"=1", "UPSTREAM_KEY="+upstreamKey)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(p.ended)
		_ = p.cmd.Wait() // the state tells
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended, which is fine
		<-p.ended
		text := p.out.text()
		for _, alarm := range []string{"DATA RACE", "panic", canary} {
			if strings.Contains(text, alarm) {
				t.Errorf("the program wrote %q", alarm)
			}
		}
		if t.Failed() {
			t.Logf("%v wrote:\n%s", args, text)
		}
	})
	return p
}

var listening = regexp.MustCompile(`msg=listening for=(\w+) addr=(127\.0\.0\.1:\d+)`)

// serve starts `evenkeel serve` and returns once it is ready.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return serveAs(t, func(*exec.Cmd) {}, args...)
}

// serveAs is serve with a command that prepare has changed.
func serveAs(t *testing.T, prepare func(*exec.Cmd), args ...string) *program {
	t.Helper()
	p := runAs(t, prepare, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.await("it listens", func() bool {
		for _, m := range listening.FindAllStringSubmatch(p.out.text(), -1) {
			switch m[1] {
			case "data":
				p.url = "http://" + m[2]
			case "admin":
				p.admin = "http://" + m[2]
			}
		}
		return p.url != "" && p.admin != ""
	})
	p.await("it is ready", func() bool { status, _ := get(p.url + "/readyz"); return status == http.StatusOK })
	return p
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the end and returns the exit code; −1 = ended by a signal.
func (p *program) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatal("the program did not end")
		return 0
	}
}

// says waits until the program has written text n times.
func (p *program) says(text string, n int) {
	p.t.Helper()
	p.await("it says "+text, func() bool { return strings.Count(p.out.text(), text) >= n })
}

func (p *program) await(what string, holds func() bool) {
	p.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			p.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// get fetches a URL on a connection of its own; status 0 = no answer.
func get(url string, headers ...string) (status int, body string) {
	return do(http.MethodGet, url, "", headers...)
}

func do(method, url, body string, headers ...string) (status int, answer string) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Close = true
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := (&http.Client{Timeout: patience}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// command runs evenkeel in this process until it ends.
func command(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Main(args, &out, &errs)
	return code, out.String(), errs.String()
}

// output keeps what a program writes. Safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
