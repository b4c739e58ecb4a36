package mock

import (
	"strings"
	"testing"
)

func TestSeen(t *testing.T) {
	f := func(stream string, want Seen) {
		t.Helper()
		var s Seen
		for line := range strings.Lines(stream) {
			s.Line([]byte(line))
		}
		if s != want {
			t.Errorf("%s\nis seen as %+v, want %+v", stream, s, want)
		}
	}
	first := `data: {"choices":[{"delta":{"content":"[gpu-1]"}}]}` + "\n\n"
	end := `data:{"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\r\n\r\n"
	f(": comment\n\nevent: x\n\n", Seen{})
	f(first+end+"data: [DONE]\n\n", Seen{Tokens: 1, Who: "gpu-1", Finished: true, Done: true})
	f(first+"data: [DONE]\n\n"+end, Seen{Tokens: 1, Who: "gpu-1", Finished: true, Done: true, Late: true})
	f(first+`data: {"error":{"code":503}}`+"\n\n", Seen{Tokens: 1, Who: "gpu-1", Failure: "503"})
	f(`data: {"error":{"type":"overloaded_error"}}`+"\n\n", Seen{Failure: "overloaded_error"})
	f(`data: {"error":{}}`+"\n\n"+first, Seen{Failure: "without a code", Tokens: 1, Who: "gpu-1", Late: true})
	f("data: {\n", Seen{Failure: NotJSON})
}

func TestWho(t *testing.T) {
	if got := Who([]byte(`{"choices":[{"message":{"content":"[gpu-1] says"}}]}`)); got != "gpu-1" {
		t.Errorf("got %q", got)
	}
	for _, none := range []string{"", "[]", `{"choices":[]}`} {
		if got := Who([]byte(none)); got != "" {
			t.Errorf("%s: %q", none, got)
		}
	}
}
