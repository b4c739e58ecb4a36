//go:build linux

package overload

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"evenkeel/tests/harness"
)

// TestR60MemoryLimit: large requests that are held pile up under a limit of 256 MiB. New ones are refused before
// the limit and small ones served, what was let in ends well, and then all are served again.
func TestR60MemoryLimit(t *testing.T) {
	const limit = 256 << 20
	e := newEngine(t)
	b := harness.Limited(t, 0, []string{"GOMEMLIMIT=256MiB"}, "--config", e.config(t, "max_body: 8MiB\nbody_memory: 1GiB\n"))
	large := chat(`"hold":true,"user":"` + strings.Repeat("x", 1<<20) + `",`)
	type result struct {
		res *http.Response
		err error
	}
	results := make(chan result)
	refused, running := 0, 0
	for n := 1; n <= 300; n++ {
		c := connect(t, b)
		go func() { // ends with its result, which is taken below
			res, err := ask(c, large)
			results <- result{res, err}
		}()
		harness.Eventually(t, patience, "the request is at the engine, or refused", func() bool {
			select {
			case r := <-results:
				refused++
				if r.err != nil || r.res.StatusCode != http.StatusServiceUnavailable || r.res.Header.Get("Retry-After") == "" {
					t.Errorf("refused with %v, %v", r.res, r.err)
				}
			default:
			}
			running = n - refused
			return int(e.held.Load()) == running
		})
	}
	now, most := memory(t, b.PID())
	t.Logf("%d run, %d were refused; %d MiB, at most %d MiB of memory", running, refused, now>>20, most>>20)
	if refused == 0 || running < 50 {
		t.Errorf("%d run and %d were refused, want at least 50 and 1", running, refused)
	}
	if most > overhead*limit*5/4 {
		t.Errorf("%d MiB were held under a limit of %d", most>>20, limit>>20)
	}
	if n := metric(t, b, "evenkeel_memory_shortage"); n != 1 {
		t.Errorf("evenkeel_memory_shortage is %v while large requests are refused", n)
	}
	if res, err := ask(connect(t, b), chat("")); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("a small request got %v, %v", res, err)
	}
	e.finish()
	for range running {
		if r := <-results; r.err != nil || r.res.StatusCode != http.StatusOK {
			t.Errorf("one that was let in ended with %v, %v", r.res, r.err)
		}
	}
	var c net.Conn
	harness.Eventually(t, patience, "requests are served again", func() bool {
		c = connect(t, b)
		defer c.Close()
		res, err := ask(c, strings.Replace(large, `"hold":true,`, "", 1))
		return err == nil && res.StatusCode == http.StatusOK
	})
	harness.Eventually(t, patience, "the log says so", func() bool { return strings.Contains(b.Log(), "memory is enough again") })
	for _, line := range []string{"memory is short", "memory is enough again"} {
		if n := strings.Count(b.Log(), line); n != 1 {
			t.Errorf("%q is logged %d times, want once", line, n)
		}
	}
}
