package upstream

import (
	"io"
	"strings"
	"testing"

	"evenkeel/internal/llm"
)

// Waiting for more changes nothing of what a read then returns: a body that was reset is not taken for a whole one
// though its end cannot be told from the connection's.
func TestAwaitThenRead(t *testing.T) {
	f := func(name, answer string, broken bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			read := make(chan struct{})
			e := newFake(t, func(_ int64, p *peer) {
				if r, _ := p.request(); r == nil {
					return
				}
				p.say(answer)
				<-read
				if broken {
					p.reset()
				}
			}).endpoint(t)
			res, err := do(within(t), e, post("{}"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if !Await(res.Body) {
				t.Fatal("it cannot tell")
			}
			got := make([]byte, 2)
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "ok" {
				t.Fatalf("read %q, %v", got, err)
			}
			close(read)
			Await(res.Body)
			switch _, err := res.Body.Read(got); {
			case !broken && err != io.EOF:
				t.Errorf("%v, want the end", err)
			case broken && (err == nil || err == io.EOF || BrokenBody(err) != llm.Reset):
				t.Errorf("%v, want a reset", err)
			}
			if !Ready(res.Body) || !Sent(res.Body) || !Await(res.Body) {
				t.Error("after the end there is something to wait for")
			}
		})
	}
	f("until closed", "HTTP/1.1 200 OK\r\n\r\nok", false)
	f("until closed, reset", "HTTP/1.1 200 OK\r\n\r\nok", true)
	f("length, reset", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", true)
	f("chunked, reset", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", true)
	if Await(strings.NewReader("x")) || Ready(strings.NewReader("x")) || Sent(strings.NewReader("x")) {
		t.Error("of a body that is not ours it tells something")
	}
}
