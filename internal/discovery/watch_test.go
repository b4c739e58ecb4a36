package discovery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// log collects reports with the virtual time since its start.
type log struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func (l *log) add(r Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%v %s", time.Since(l.start), r.Target.Name)
	if r.Reachable {
		line += " up " + r.Kind + r.Version
		for _, m := range r.Models {
			line += " " + m.ID
		}
	} else {
		line += " down"
	}
	l.lines = append(l.lines, line)
}

// want compares what came since the last call; each line is "time name state".
func (l *log) want(t *testing.T, lines ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.lines, lines) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(l.lines, "\n  "), strings.Join(lines, "\n  "))
	}
	l.lines = nil
}

// watching runs Watch on one endpoint "a" in virtual time and a test beside it. At the end nothing may be left running:
// synctest fails the test if so.
func watching(t *testing.T, s *server, o Options, test func(l *log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &log{start: time.Now()}
		o.Way = by(s)
		done := make(chan struct{})
		go func() {
			defer close(done)
			Watch(ctx, []Target{{Name: "a", URL: "http://a:8000"}}, o, l.add)
		}()
		synctest.Wait()
		test(l)
		cancel()
		<-done
	})
}

// after lets virtual time pass until just after d.
func after(d time.Duration) {
	time.Sleep(d + time.Millisecond)
	synctest.Wait()
}

func TestWatchRefreshes(t *testing.T) {
	s := &server{pages: with(llamacpp, "", "")}
	watching(t, s, Options{}, func(l *log) {
		l.want(t, "0s a up llamacpp m.gguf", "0s a up llamacppb6123-abcdef m.gguf")
		wantPaths(t, s.asked(), "/v1/models", "/props")
		after(65 * time.Second)
		l.want(t, "30s a up llamacppb6123-abcdef m.gguf", "1m0s a up llamacppb6123-abcdef m.gguf")
		wantPaths(t, s.asked(), "/v1/models", "/props", "/v1/models", "/props")
		s.set(func(s *server) {
			s.pages["/v1/models"] = `{"data":[{"id":"m.gguf","owned_by":"llamacpp"},{"id":"new","owned_by":"llamacpp"}]}`
		})
		after(30 * time.Second)
		l.want(t, "1m30s a up llamacppb6123-abcdef m.gguf new")
	})
}

func TestWatchSeesAServerThatComesUp(t *testing.T) {
	s := &server{pages: with(vllm, "", ""), down: true}
	watching(t, s, Options{RetryInterval: 800 * time.Millisecond}, func(l *log) {
		after(time.Second)
		l.want(t, "0s a down", "800ms a down")
		s.set(func(s *server) { s.down = false })
		after(time.Second)
		l.want(t, "1.6s a up vllm Qwen/Qwen3-8B sql-lora", "1.6s a up vllm0.26.1 Qwen/Qwen3-8B sql-lora")
		after(20 * time.Second)
		l.want(t)
	})
}

// What comes back may be another server, with another engine and other models.
func TestWatchAsksAgainAfterAReconnect(t *testing.T) {
	s := &server{pages: with(llamacpp, "/v1/models", `{"data":[{"id":"m"}]}`)}
	watching(t, s, Options{}, func(l *log) {
		l.want(t, "0s a up llamacppb6123-abcdef m")
		s.set(func(s *server) { s.down = true })
		after(31 * time.Second)
		l.want(t, "30s a down", "30.5s a down", "31s a down")
		s.asked()
		s.set(func(s *server) {
			s.down = false
			s.pages = with(sglang, "/v1/models", `{"data":[{"id":"n"}]}`)
		})
		after(time.Second)
		l.want(t, "31.5s a up llamacppb6123-abcdef n", "31.5s a up sglang0.5.9 n")
		wantPaths(t, s.asked(), "/v1/models", "/version", "/server_info", "/get_server_info")
		after(30 * time.Second)
		l.want(t, "1m1.5s a up sglang0.5.9 n")
		wantPaths(t, s.asked(), "/v1/models", "/server_info", "/get_server_info") // what it is stays known
	})
}

// A server that was exchanged between two probes shows by the owner of its models.
func TestWatchSeesAnotherOwner(t *testing.T) {
	s := &server{pages: with(llamacpp, "", "")}
	watching(t, s, Options{}, func(l *log) {
		l.want(t, "0s a up llamacpp m.gguf", "0s a up llamacppb6123-abcdef m.gguf")
		s.set(func(s *server) { s.pages = vllm })
		after(30 * time.Second)
		l.want(t, "30s a up vllm0.26.1 Qwen/Qwen3-8B sql-lora")
	})
}

func TestWatchWhileRequestsAreHeldBack(t *testing.T) {
	s := &server{pages: with(llamacpp, "/v1/models", `{"data":[{"id":"m"}]}`)}
	var out atomic.Bool
	watching(t, s, Options{Out: func(target Target) bool { return target.Name == "a" && out.Load() }}, func(l *log) {
		l.want(t, "0s a up llamacppb6123-abcdef m")
		after(10 * time.Second)
		s.asked()
		out.Store(true)
		after(time.Second)
		l.want(t, "10.5s a up llamacppb6123-abcdef m", "11s a up llamacppb6123-abcdef m")
		wantPaths(t, s.asked(), "/v1/models", "/v1/models") // the cheap page only
		s.set(func(s *server) { s.down = true })
		after(time.Second)
		l.want(t, "11.5s a down", "12s a down")
		s.set(func(s *server) { s.down = false })
		after(500 * time.Millisecond)
		l.want(t, "12.5s a up llamacppb6123-abcdef m", "12.5s a up llamacppb6123-abcdef m")
		out.Store(false)
		after(29 * time.Second)
		l.want(t)
		s.asked()
		after(time.Second)
		l.want(t, "42.5s a up llamacppb6123-abcdef m")
		wantPaths(t, s.asked(), "/v1/models", "/props")
	})
}

// After a time out the kind is asked for again: the server may be another one.
func TestWatchAsksAgainAfterATimeOut(t *testing.T) {
	s := &server{pages: pages{"/v1/models": `{"data":[{"id":"m"}]}`}}
	var out atomic.Bool
	watching(t, s, Options{Out: func(Target) bool { return out.Load() }}, func(l *log) {
		l.want(t, "0s a up openai-compatible m")
		out.Store(true)
		after(time.Second)
		l.want(t, "500ms a up openai-compatible m", "1s a up openai-compatible m")
		s.set(func(s *server) { s.pages = with(llamacpp, "/v1/models", `{"data":[{"id":"m"}]}`) })
		out.Store(false)
		after(30 * time.Second)
		l.want(t, "31s a up llamacppb6123-abcdef m")
	})
}

func TestWatchWhileTheModelLoads(t *testing.T) {
	loading := `503 {"error":{"message":"Loading model","type":"unavailable_error","code":503}}`
	s := &server{pages: pages{"/v1/models": loading, "/props": loading}}
	watching(t, s, Options{}, func(l *log) {
		after(time.Second)
		l.want(t, "0s a up ", "500ms a up ", "1s a up ")
		wantPaths(t, s.asked(), "/v1/models", "/v1/models", "/v1/models")
		s.set(func(s *server) { s.pages = llamacpp })
		after(500 * time.Millisecond)
		l.want(t, "1.5s a up llamacpp m.gguf", "1.5s a up llamacppb6123-abcdef m.gguf")
		after(20 * time.Second)
		l.want(t)
	})
}

// A key that is refused is not asked for twice a second: that would look like guessing.
func TestWatchIsPatientWithARefusal(t *testing.T) {
	s := &server{pages: pages{"/v1/models": `401 {}`}}
	watching(t, s, Options{}, func(l *log) {
		after(59 * time.Second)
		l.want(t, "0s a up openai-compatible", "30s a up openai-compatible")
	})
}

func TestWatchBoundsAServerThatHangs(t *testing.T) {
	s := &server{pages: vllm, hangs: true}
	watching(t, s, Options{}, func(l *log) {
		after(10 * time.Second)
		l.want(t, "5s a down", "10s a down")
		s.set(func(s *server) { s.hangs = false })
		after(5 * time.Second)
		l.want(t, "15s a down", "15s a up vllm Qwen/Qwen3-8B sql-lora", "15s a up vllm0.26.1 Qwen/Qwen3-8B sql-lora")
	})
}

func TestWatchEndsInTheMiddleOfAGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1234*time.Millisecond)
		defer cancel()
		l := &log{start: time.Now()}
		Watch(ctx, []Target{{Name: "a", URL: "http://a"}}, Options{Way: by(&server{hangs: true})}, l.add)
		if d := time.Since(l.start); d != 1234*time.Millisecond {
			t.Errorf("it took %v to end", d)
		}
		l.want(t) // that ctx ended says nothing about the endpoint
	})
}

func TestWatchAsksTargetsIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 31*time.Second)
		defer cancel()
		var mu sync.Mutex
		last := map[string]Report{}
		var targets []Target
		for i := range 50 {
			targets = append(targets, Target{Name: fmt.Sprint(i), URL: fmt.Sprintf("http://%d", i), Kind: "openai"})
		}
		good, hung := &server{pages: vllm}, &server{hangs: true}
		rt := byHost{"7": hung, "": good}
		Watch(ctx, targets, Options{Way: by(rt)}, func(r Report) {
			mu.Lock()
			defer mu.Unlock()
			last[r.Target.Name] = r
		})
		for _, target := range targets {
			if r := last[target.Name]; r.Reachable != (target.Name != "7") || r.Target.URL != target.URL {
				t.Errorf("%s: got %s", target.Name, describe(r))
			}
		}
		if n := len(good.asked()); n != 49*2 { // at 0 s and at 30 s
			t.Errorf("got %d GETs", n)
		}
	})
}
