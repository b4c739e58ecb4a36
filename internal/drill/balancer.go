package drill

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// balancer is a running evenkeel.
type balancer struct {
	b     *Bench
	url   string // of the data listener
	host  string // its host:port
	admin string

	cmd    *exec.Cmd
	config string
	out    logLines
	ended  chan struct{} // closed when it has ended and its output is read
	idle   *sample       // when it was ready, before any traffic
}

// launch says how to start one.
type launch struct {
	config string
	env    []string
	files  int    // RLIMIT_NOFILE, 0 = as it is
	hosts  string // a file that it has in place of /etc/hosts
	mute   bool   // its log is read until it listens, and then no more
}

// lastLines is how much of a log is kept.
const lastLines = 4000

// logLines keeps the last lines of a log. Safe for concurrent use.
type logLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *logLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= lastLines {
		l.lines = append(l.lines[:0], l.lines[lastLines/2:]...)
	}
	l.lines = append(l.lines, line)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

var listening = regexp.MustCompile(`\bmsg=listening for=(\w+) addr=(\S+)`)

const startLimit = 30 * time.Second

// serveAs starts a balancer and returns when it is ready.
func (b *Bench) serveAs(l launch) *balancer {
	x := &balancer{b: b, config: l.config, ended: make(chan struct{})}
	args := []string{b.program, "serve", "--config", l.config}
	if l.files > 0 {
		args = append([]string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, l.files), "sh"}, args...)
	}
	if l.hosts != "" {
		args = append([]string{"/bin/sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, l.hosts}, args...)
	}
	x.cmd = exec.Command(args[0], args[1:]...)
	if l.hosts != "" {
		b.must(ownMounts(x.cmd))
	}
	x.cmd.Env = append(os.Environ(), l.env...)
	if b.undefended != "" {
		x.cmd.Env = append(x.cmd.Env, undefendedVariable+"="+b.undefended)
	}
	pipe, err := x.cmd.StderrPipe()
	b.must(err)
	b.must(x.cmd.Start())
	b.balancers = append(b.balancers, x)
	go x.read(pipe, l.mute) // ends with the process
	b.until(startLimit, func() bool { return x.listens() || x.gone() })
	if x.gone() || !x.listens() {
		b.stopf("evenkeel does not begin to listen")
	}
	if !b.until(startLimit, x.ready) {
		b.stopf("evenkeel is not ready")
	}
	x.idle = x.sample()
	return x
}

// read follows the log until the process ends. With mute it stops reading once the listeners are told: the pipe fills.
func (x *balancer) read(pipe io.Reader, mute bool) {
	defer close(x.ended)
	defer x.cmd.Wait() // the state is in ProcessState
	lines := bufio.NewReader(pipe)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			x.out.add(strings.TrimRight(line, "\n"))
		}
		if err != nil || mute && strings.Contains(x.out.text(), "for=data") {
			return
		}
	}
}

func (x *balancer) listens() bool {
	for _, m := range listening.FindAllStringSubmatch(x.out.text(), -1) {
		switch m[1] {
		case "data":
			x.url, x.host = "http://"+m[2], m[2]
		case "admin":
			x.admin = "http://" + m[2]
		}
	}
	return x.url != "" && x.admin != ""
}

func (x *balancer) ready() bool {
	status, _, err := x.get(x.url + "/readyz")
	return err == nil && status == http.StatusOK
}

// control is for questions to the admin listener: a connection for each, so that it is not counted as growth.
var control = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func (x *balancer) get(url string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(x.b.ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	res, err := control.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// ask asks the admin listener for JSON.
func (x *balancer) ask(path string, into any) error {
	status, body, err := x.get(x.admin + path)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET %s: status %d", path, status)
	}
	return json.Unmarshal(body, into)
}

// standing is how the balancer sees a deployment, or an endpoint.
type standing struct {
	state    string
	reason   string
	out      time.Duration // length of the present time out
	inFlight int
	picks    int
	faults   int
}

// stands tells of each endpoint how it stands: its own state if that is not closed, else that of its only deployment.
func (x *balancer) stands() map[string]standing {
	type breaker struct {
		State      string  `json:"state"`
		Reason     string  `json:"reason"`
		OutSeconds float64 `json:"out_seconds"`
	}
	var view struct {
		Deployments []struct {
			Endpoint string  `json:"endpoint"`
			Member   bool    `json:"member"`
			InFlight int     `json:"in_flight"`
			Breaker  breaker `json:"breaker"`
			Totals   struct{ Picks, Faults int }
		} `json:"deployments"`
		Scopes []struct {
			Kind    string  `json:"kind"`
			Name    string  `json:"name"`
			Breaker breaker `json:"breaker"`
		} `json:"scopes"`
	}
	x.b.must(x.ask("/deployments", &view))
	seen := map[string]standing{}
	for _, d := range view.Deployments {
		if d.Member {
			seen[d.Endpoint] = standing{d.Breaker.State, d.Breaker.Reason, asDuration(d.Breaker.OutSeconds), d.InFlight, d.Totals.Picks, d.Totals.Faults}
		}
	}
	for _, s := range view.Scopes {
		if d, ok := seen[s.Name]; ok && s.Breaker.State != "closed" {
			d.state, d.reason, d.out = s.Breaker.State, s.Breaker.Reason, asDuration(s.Breaker.OutSeconds)
			seen[s.Name] = d
		}
	}
	return seen
}

func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// explained is what the balancer remembers of a request.
type explained struct {
	Result   string `json:"result"`
	Attempts []struct {
		Deployment string `json:"deployment"`
		Waste      bool   `json:"waste"`
		Outcome    struct {
			Verdict        string `json:"verdict"`
			Class          string `json:"class"`
			InputTokens    int    `json:"input_tokens"`
			OutputTokens   int    `json:"output_tokens"`
			TokensReported bool   `json:"tokens_reported"`
		} `json:"outcome"`
	} `json:"attempts"`
}

// explain returns what is remembered of a request, once it is over.
func (x *balancer) explain(id string) (e explained) {
	if id == "" {
		x.b.stopf("the answer has no x-evenkeel-id")
	}
	if !x.b.until(2*time.Second, func() bool { return x.ask("/explain/"+id+"?format=json", &e) == nil }) {
		x.b.stopf("the balancer does not remember request %s", id)
	}
	return e
}

// signal sends one to the process.
func (x *balancer) signal(s os.Signal) { x.b.must(x.cmd.Process.Signal(s)) }

// reload makes the present configuration the balancer's and waits until it says so.
func (x *balancer) reload() {
	x.b.must(os.Rename(x.b.configuration("next.yaml"), x.config))
	n := strings.Count(x.out.text(), "configuration reloaded")
	x.signal(syscall.SIGHUP)
	if !x.b.until(10*time.Second, func() bool { return strings.Count(x.out.text(), "configuration reloaded") > n }) {
		x.b.stopf("the balancer did not reload; it said:\n%s", x.b.lastWords())
	}
}

// gone reports whether the process has ended.
func (x *balancer) gone() bool {
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// exit waits for the end of the process and returns its exit code, −1 if it did not end in time.
func (x *balancer) exit(limit time.Duration) int {
	ctx, cancel := context.WithTimeout(x.b.ctx, limit)
	defer cancel()
	select {
	case <-x.ended:
		return x.cmd.ProcessState.ExitCode()
	case <-ctx.Done():
		return -1
	}
}

// kill ends the process at once, and waits for it.
func (x *balancer) kill() {
	_ = x.cmd.Process.Kill() // fails if it has ended
	<-x.ended
}

// lastWords are the last lines of the balancers' logs.
func (b *Bench) lastWords() string {
	var said []string
	for _, x := range b.balancers {
		lines := strings.Split(x.out.text(), "\n")
		said = append(said, lines[max(0, len(lines)-15):]...)
	}
	return strings.Join(said, "\n")
}
