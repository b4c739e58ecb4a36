package console

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// longestProfile bounds ?seconds= of a profile: sampling costs every request a little.
const longestProfile = 120 // seconds

type profileKind struct{ name, shows string }

// profileKinds are what /debug/pprof/NAME answers. The command line is not among them: it may hold a key.
var profileKinds = []profileKind{
	{"profile", "CPU time over ?seconds=N (30)"},
	{"heap", "memory in use"},
	{"allocs", "memory allocated since the start, or within ?seconds=N"},
	{"goroutine", "what each goroutine does; ?debug=2 as text"},
	{"threadcreate", "threads"},
	{"mutex", "waits for locks within ?seconds=N"},
	{"block", "all waits within ?seconds=N"},
	{"trace", "every event of the scheduler within ?seconds=N"},
}

// sampling is held by whoever switched sampling of the process on. The switches are the runtime's, one per process.
var sampling sync.Mutex

func (c *console) profiles(w http.ResponseWriter, _ *http.Request) {
	text := "profiles of this process, for go tool pprof http://ADDRESS/debug/pprof/NAME\n\n"
	for _, p := range profileKinds {
		text += fmt.Sprintf("%-14s%s\n", p.name, p.shows)
	}
	writeText(w, http.StatusOK, text)
}

// profile answers one profile. Mutex and block are sampled only while one is asked for.
func (c *console) profile(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	// A page can have the browser ask without an Origin (an image, say), and sampling costs: so only what a person typed.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		c.fail(w, r, http.StatusForbidden, "profiles are refused to pages of other sites")
		return
	}
	if !slices.ContainsFunc(profileKinds, func(p profileKind) bool { return p.name == name }) {
		c.fail(w, r, http.StatusNotFound, fmt.Sprintf("no profile is named %q; /debug/pprof/ lists them", shortened(name)))
		return
	}
	text := r.URL.Query().Get("seconds")
	if seconds, err := strconv.Atoi(text); text != "" && (err != nil || seconds < 1 || seconds > longestProfile) {
		c.fail(w, r, http.StatusBadRequest, fmt.Sprintf("seconds is %q, it must be a number from 1 to %d", shortened(text), longestProfile))
		return
	}
	if text == "" && (name == "mutex" || name == "block") {
		c.fail(w, r, http.StatusBadRequest, fmt.Sprintf("%s is sampled only while it is asked for: add ?seconds=10", name))
		return
	}
	switch name {
	case "profile", "trace", "mutex", "block":
		if !sampling.TryLock() {
			c.fail(w, r, http.StatusConflict, "another profile is being taken; ask again when it is done")
			return
		}
		defer sampling.Unlock()
	}
	switch name {
	case "profile":
		pprof.Profile(w, r)
		return
	case "trace":
		pprof.Trace(w, r)
		return
	case "mutex", "block":
		defer sample(name)()
	}
	pprof.Handler(name).ServeHTTP(w, r)
}

// sample switches the sampling of mutex or block on; the returned function switches it off. One wait for a lock in 10
// is noted, and waits of all kinds once per 10 µs waited on average.
func sample(name string) func() {
	if name == "mutex" {
		before := runtime.SetMutexProfileFraction(10)
		return func() { runtime.SetMutexProfileFraction(before) }
	}
	runtime.SetBlockProfileRate(10_000) // ns
	return func() { runtime.SetBlockProfileRate(0) }
}
