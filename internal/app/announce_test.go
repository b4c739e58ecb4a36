package app

import (
	"errors"
	"log/slog"
	"testing"

	"evenkeel/internal/discovery"
)

func TestAnnouncements(t *testing.T) {
	logger, log := linesLogger(slog.LevelInfo)
	a, err := New(parse(t, "endpoints: {e: {url: 'http://127.0.0.1:1'}}"), Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	target := targets(a.current.Load().Config)[0]
	const of = ` endpoint=e url=http://127.0.0.1:1 `
	f := func(r discovery.Report, want string) {
		t.Helper()
		r.Target = target
		a.found(r)
		if got := log.taken(); got != want {
			t.Errorf("logged\n%s\nwant\n%s", got, want)
		}
	}
	is := func(kind, version string, kv int, models ...string) discovery.Report {
		r := discovery.Report{Reachable: true, Kind: kind, Version: version, KVTokens: kv}
		for _, m := range models {
			r.Models = append(r.Models, discovery.ModelInfo{ID: m})
		}
		return r
	}
	down := discovery.Report{Err: errors.New("refused")}
	if got := a.Summary(); got != "1 endpoint" {
		t.Errorf("before anybody was asked the summary is %q", got)
	}
	f(down, `level=WARN msg="endpoint does not answer yet; it joins when it does"`+of+`error=refused`)
	f(down, "")
	f(is("vllm", "", 0, "m"), "") // at once, and then with what it says of itself
	if got := a.Summary(); got != "1 endpoint, 1 model" {
		t.Errorf("the summary is %q", got)
	}
	const serves = `level=INFO msg="endpoint serves"` + of
	f(is("vllm", "0.11.0", 5000, "m"), serves+`kind=vllm models=[m] version=0.11.0 kv_tokens=5000`)
	f(is("vllm", "0.11.0", 5000, "m"), "")
	f(is("vllm", "0.11.0", 5000, "m", "lora"), serves+`kind=vllm models="[m lora]" version=0.11.0 kv_tokens=5000`)
	if got := a.Summary(); got != "1 endpoint, 2 models" {
		t.Errorf("the summary is %q", got)
	}
	f(is("vllm", "", 0, "m", "lora"), "") // a new watch of the same
	f(is("vllm", "0.11.0", 5000, "m", "lora"), "")
	f(down, `level=WARN msg="endpoint stopped answering; requests go elsewhere until it is back"`+of+`error=refused`)
	f(is("vllm", "", 0, "m"), "")
	f(is("vllm", "", 0, "m"), serves+`kind=vllm models=[m]`) // it says no more
	f(is("vllm", "0.12.0", 0, "m"), "")
	f(is("vllm", "0.12.1", 0, "m"), serves+`kind=vllm models=[m] version=0.12.1`)
	f(is("openai-compatible", "", 0, "m"), serves+`kind=openai-compatible models=[m]`)
	odd := is("openai-compatible", "", 0, "m")
	odd.Err = errors.New("503")
	f(odd, `level=WARN msg="endpoint answers, but not as expected"`+of+`kind=openai-compatible error=503`)
	f(is("openai-compatible", "", 0, "m"), serves+`kind=openai-compatible models=[m]`)
}
