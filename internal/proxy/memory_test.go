package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
)

// A prompt is needed again only while the answer can still move: an open stream must not hold it for minutes.
func TestPromptIsLetGoOnceContentFlows(t *testing.T) {
	content, over := make(chan struct{}), make(chan struct{})
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		flush := func(text string) {
			_, _ = io.WriteString(rw, text)
			_ = http.NewResponseController(rw).Flush()
		}
		rw.Header().Set("Content-Type", "text/event-stream")
		flush(": waiting\n\n")
		<-content
		flush(delta("0"))
		<-over
		flush(healthy)
	})
	body := strings.Replace(streamBody, "hello", strings.Repeat("x", 3<<20), 1)
	res := w.open("/v1/chat/completions", body)
	if _, err := io.ReadFull(res.Body, make([]byte, len(": waiting\n\n"))); err != nil {
		t.Fatal(err)
	}
	if held := w.proxy.BodyMemory(); held < int64(len(body)) {
		t.Errorf("%d bytes are held before there is content, want the prompt's %d: the request may have to move", held, len(body))
	}
	close(content)
	if _, err := io.ReadFull(res.Body, make([]byte, len(delta("0")))); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); w.proxy.BodyMemory() != 0; time.Sleep(time.Millisecond) { // just after the write
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held though content has gone to the client", w.proxy.BodyMemory())
		}
	}
	close(over)
	if rest, err := io.ReadAll(res.Body); err != nil || string(rest) != healthy {
		t.Errorf("the rest: %q, %v", rest, err)
	}
	if r := w.record(1); r.Result != exchange.Complete {
		t.Errorf("%s", r.Result)
	}
}
