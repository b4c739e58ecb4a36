package harness

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("BE_THE_PROGRAM") != "" {
		program()
		return
	}
	Main(m)
}

// program is what the tests here start: it says what it is told.
func program() {
	os.Stderr.WriteString("one\r\ntw")
	os.Stderr.WriteString("o\nno line end")
	b := make([]byte, 100)
	n, _ := os.Stdin.Read(b)
	os.Stdout.Write(append([]byte("told: "), b[:n]...))
	os.Stdin.Read(b) // until it is killed, or stdin ends
}

func TestProcess(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BE_THE_PROGRAM=1")
	p := Start(t, cmd)
	if got := p.Await(t, regexp.MustCompile(`^(\w+)$`), 10*time.Second); !slices.Equal(got, []string{"one", "one"}) {
		t.Errorf("first line matches as %q", got)
	}
	if got := p.Await(t, regexp.MustCompile(`.*`), 10*time.Second); got[0] != "two" {
		t.Errorf("the next line is %q, want two", got[0])
	}
	p.WriteLine(t, "hello")
	p.Await(t, regexp.MustCompile(`^told: hello$`), 10*time.Second)
	p.Kill()
	if got, want := p.Output(), "one\ntwo\ntold: hello\nno line end"; got != want {
		t.Errorf("output is %q, want %q", got, want)
	}
	if p.ExitCode() == 0 {
		t.Error("a killed program must not look like one that ended well")
	}
}

func TestLines(t *testing.T) {
	f := func(pieces []string, want ...string) {
		t.Helper()
		l := lines{changed: make(chan struct{}, 1)}
		w := &lineWriter{to: &l}
		for _, p := range pieces {
			w.Write([]byte(p))
		}
		w.flush()
		if !slices.Equal(l.all, want) {
			t.Errorf("%q gives lines %q, want %q", pieces, l.all, want)
		}
	}
	f(nil)
	f([]string{"a\nb\n"}, "a", "b")
	f([]string{"a", "b\r", "\n\n", "c"}, "ab", "", "c")
}
