//go:build linux

package cli

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/mock"
)

// withFiles is for run: the program may have n files open.
func withFiles(n int, cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n)}, cmd.Args...)
	cmd.Path = "/bin/sh"
}

// cpu is the processor time that a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	const user, system = 11, 12 // after the name, see proc(5)
	ticks := 0
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Without file descriptors the program waits for some, without spinning, and serves again when it has them.
func TestC08FewFiles(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	for _, f := range []struct{ connections, reason string }{
		{"", `reason="max"`}, // what goes with the limit of files: there are always some left
		{"connections: {max: 5000}", `reason="accept_error"`},
	} {
		t.Run(f.reason, func(t *testing.T) {
			file := write(t, filepath.Join(t.TempDir(), "c.yaml"), fmt.Sprintf("endpoints: {e: {url: %q}}\n%s", e.URL(), f.connections))
			p := serveAs(t, func(cmd *exec.Cmd) { withFiles(64, cmd) }, "--config", file)
			var conns []net.Conn
			release := func() {
				for _, c := range conns {
					c.Close()
				}
			}
			defer release()
			for range 100 {
				c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
				if err == nil { // else it was refused already
					conns = append(conns, c)
				}
			}
			p.says("connections are refused", 1)
			before := cpu(t, p.cmd.Process.Pid)
			<-time.After(time.Second) // to see what it does meanwhile
			if used := cpu(t, p.cmd.Process.Pid) - before; used > 300*time.Millisecond {
				t.Errorf("in a second without file descriptors it used %v", used)
			}
			release()
			p.await("it serves again", func() bool { status, _ := get(p.url + "/livez"); return status == http.StatusOK })
			if status, text := do(http.MethodPost, p.url+"/v1/chat/completions", `{"model":"m","messages":[]}`); status != http.StatusOK {
				t.Errorf("%d %s", status, text)
			}
			_, metrics := get(p.admin + "/metrics")
			counted := `evenkeel_connections_refused_total{listener="data",` + f.reason + `} `
			if _, value, found := strings.Cut(metrics, counted); !found || strings.HasPrefix(value, "0") {
				t.Errorf("%s is not counted", f.reason)
			}
			p.signal(syscall.SIGTERM)
			if code := p.exit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}

// SIGHUP never ends the process, however late it comes.
func TestHangupAtTheEnd(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	for range 3 {
		p := serve(t, e.URL())
		p.signal(syscall.SIGTERM)
		for ended := false; !ended; {
			select {
			case <-p.ended:
				ended = true
			default:
				_ = p.cmd.Process.Signal(syscall.SIGHUP) // it may just have ended
			}
		}
		if code := p.exit(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
	}
}

// The bounds in effect are in the log's first lines, and a bound that the limit of files makes useless is warned of.
func TestLimitsAreTold(t *testing.T) {
	e := mockEngine(t, mock.Config{Name: "e", Models: []string{"m"}})
	limited := func(cmd *exec.Cmd) { withFiles(64, cmd) }
	const warning = "connections.max: 5000 is never reached: this process may open 64 files"
	f := func(settings string, warned bool, limits string) {
		t.Helper()
		file := write(t, filepath.Join(t.TempDir(), "c.yaml"), fmt.Sprintf("endpoints: {e: {url: %q}}\n%s", e.URL(), settings))
		p := serveAs(t, limited, "--config", file)
		if text := p.out.text(); strings.Contains(text, warning) != warned || !regexp.MustCompile(`msg="evenkeel starts" .* `+limits+"\n").MatchString(text) {
			t.Errorf("%s: want %s, warned %v, in\n%s", settings, limits, warned, text)
		}
		write(t, file, fmt.Sprintf("endpoints: {e: {url: %q}}\nconnections: {max: 7}\nbody_memory: 50MiB", e.URL()))
		p.signal(syscall.SIGHUP)
		p.says(`msg="configuration reloaded"`, 1)
		if text := p.out.text(); !strings.Contains(text, "connections_max=7 body_memory_mib=50\n") {
			t.Errorf("the reload does not tell the new bounds:\n%s", text)
		}
	}
	f("", false, `connections_max=16 body_memory_mib=\d+`) // a quarter of few files
	f("connections: {max: 63}\nbody_memory: 96MiB", false, "connections_max=63 body_memory_mib=96")
	f("connections: {max: 5000}\nbody_memory: 96MiB", true, "connections_max=5000 body_memory_mib=96")

	file := write(t, filepath.Join(t.TempDir(), "c.yaml"), "endpoints: {e: {url: http://10.0.0.1}}\nconnections: {max: 5000}")
	p := runAs(t, limited, "check", file)
	if code, text := p.exit(), p.out.text(); code != exitOK || !strings.Contains(text, "c.yaml:2:15: "+warning) || !strings.Contains(text, "1 warning\n") {
		t.Errorf("check: exit code %d, %s", code, text)
	}
}
