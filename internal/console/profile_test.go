package console

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// contend makes waiters for locks until the returned function is called, which waits for them.
func contend() func() {
	var lock sync.Mutex
	var work sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	for range 4 {
		work.Go(func() {
			for ctx.Err() == nil {
				lock.Lock()
				runtime.Gosched()
				lock.Unlock()
			}
		})
	}
	return func() { stop(); work.Wait() }
}

func TestProfiles(t *testing.T) {
	h := newConsole(Options{})
	unzipped := func(w *httptest.ResponseRecorder) string {
		t.Helper()
		zip, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
		if err != nil {
			t.Fatalf("not a profile: %v, %d\n%.200s", err, w.Code, w.Body)
		}
		all, err := io.ReadAll(zip)
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	for _, name := range []string{"heap", "allocs", "goroutine", "threadcreate"} {
		if w := get(h, "/debug/pprof/"+name); w.Code != 200 || len(unzipped(w)) < 100 {
			t.Errorf("%s: %d, %d bytes", name, w.Code, w.Body.Len())
		}
	}
	if w := get(h, "/debug/pprof/goroutine?debug=2"); !strings.Contains(w.Body.String(), "TestProfiles") {
		t.Errorf("the goroutines do not show this one:\n%.300s", w.Body)
	}
	if w := get(h, "/debug/pprof/trace?seconds=1"); !strings.HasPrefix(w.Body.String(), "go 1.") {
		t.Errorf("trace: %d %.100q", w.Code, w.Body)
	}
	stop := contend()
	defer stop()
	for name, shows := range map[string]string{"profile": "contend", "mutex": "contend", "block": "contend"} {
		if w := get(h, "/debug/pprof/"+name+"?seconds=1"); w.Code != 200 || !strings.Contains(unzipped(w), shows) {
			t.Errorf("%s does not show %s", name, shows)
		}
	}
	if now := runtime.SetMutexProfileFraction(-1); now != 0 {
		t.Errorf("mutexes are still sampled, one in %d", now)
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	h := newConsole(Options{})
	f := func(path string, status int, contains string, headers ...string) {
		t.Helper()
		if w := get(h, path, headers...); w.Code != status || !strings.Contains(w.Body.String(), contains) {
			t.Errorf("%s: %d %s\nwant %d with %q", path, w.Code, w.Body, status, contains)
		}
	}
	f("/debug/pprof/", 200, "mutex")
	f("/debug/pprof/cmdline", 404, "/debug/pprof/ lists them")
	f("/debug/pprof/symbol", 404, "/debug/pprof/ lists them")
	f("/debug/vars", 404, "not found")
	f("/debug/pprof/mutex", 400, "add ?seconds=10")
	f("/debug/pprof/block", 400, "add ?seconds=10")
	for _, n := range []string{"0", "-1", "121", "x", "99999999999999999999"} {
		f("/debug/pprof/profile?seconds="+n, 400, "it must be a number from 1 to 120")
	}
	f("/debug/pprof/heap", 403, "pages of other sites", "Sec-Fetch-Site", "cross-site")
	f("/debug/pprof/heap", 403, "pages of other sites", "Sec-Fetch-Site", "same-site")
	f("/debug/pprof/heap", 200, "", "Sec-Fetch-Site", "none")
	f("/debug/pprof/heap", 403, "is refused", "Host", "evil.example")
	f("/debug/pprof/heap", 403, "are refused", "Origin", "http://evil.example")
}

// A profile that is being taken ends with its client, and meanwhile no other one touches the switches.
func TestOneProfileAtATime(t *testing.T) {
	h := newConsole(Options{})
	ctx, leave := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8081/debug/pprof/block?seconds=120", nil)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}()
	deadline := time.Now().Add(20 * time.Second)
	for { // two are inside of it once the first one has begun: that, and this question
		if strings.Count(get(h, "/debug/pprof/goroutine?debug=2").Body.String(), "(*console).profile(") == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the first profile never began")
		}
	}
	if w := get(h, "/debug/pprof/profile?seconds=1"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "another profile") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	leave()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the profile outlived its client")
	}
	if w := get(h, "/debug/pprof/block?seconds=1"); w.Code != 200 {
		t.Errorf("after that: %d %s", w.Code, w.Body)
	}
}
