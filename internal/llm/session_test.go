package llm

import "testing"

// TestSessionOfBody: what names a session in a body, in order of what tells most, wherever it stands.
func TestSessionOfBody(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		for _, p := range []*Prompt{nil, NewPrompt(NewPrefixKey([32]byte{1}))} {
			r, err := ScanPrompt(chatAPI, "application/json", []byte(body), p)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if got := body[r.SessionStart:r.SessionEnd]; got != want {
				t.Errorf("%s: the session is %q, want %q", body, got, want)
			}
		}
	}
	f(`{"model":"m"}`, "")
	f(`{"model":"m","user":"u"}`, "u")
	f(`{"model":"m","user":"u","metadata":{"user_id":"id"}}`, "id")
	f(`{"model":"m","metadata":{"a":1,"user_id":"id","b":[]},"user":"u"}`, "id")
	f(`{"model":"m","previous_response_id":"resp_1","metadata":{"user_id":"id"},"user":"u"}`, "resp_1")
	f(`{"model":"m","user":"u","previous_response_id":"resp_1","metadata":{"user_id":"id"}}`, "resp_1")
	f(`{"model":"m","prompt_cache_key":"k","previous_response_id":"resp_1","metadata":{"user_id":"id"},"user":"u"}`, "k")
	f(`{"model":"m","user":"u","metadata":{"user_id":"id"},"previous_response_id":"resp_1","prompt_cache_key":"k"}`, "k")

	// The answer before is known beside whatever names the session.
	for _, body := range []string{`{"model":"m","prompt_cache_key":"k","previous_response_id":"resp_1"}`, `{"model":"m","previous_response_id":"resp_1","prompt_cache_key":"k"}`} {
		r, err := ScanPrompt(responsesAPI, "application/json", []byte(body), nil)
		if got := body[r.PreviousStart:r.PreviousEnd]; err != nil || got != "resp_1" {
			t.Errorf("%s: goes on from %q (%v)", body, got, err)
		}
	}

	// What is no text, or empty, names none, and hides nothing that does.
	f(`{"model":"m","prompt_cache_key":null,"previous_response_id":7,"metadata":{"user_id":{"x":"y"}},"user":""}`, "")
	f(`{"model":"m","prompt_cache_key":"","previous_response_id":null,"metadata":"text","user":"u"}`, "u")
	f(`{"model":"m","metadata":{"user_id":""},"user":"u"}`, "u")
	f(`{"model":"m","metadata":{},"messages":[{"user":"not this"}]}`, "")
	f(`{"model":"m","user":"first","user":"second"}`, "first")
	f(`{"model":"m","user":"\u0061\"b"}`, `\u0061\"b`)
	f(`{"model":"m","us\u0065r":"u"}`, "u")
}

// TestSessionHash: tenants do not share sessions, names are told apart at any length, and no hash means "none".
func TestSessionHash(t *testing.T) {
	k := NewPrefixKey([32]byte{1})
	seen := map[uint64]string{}
	for _, tenant := range []string{"", "a", "b", "ab"} {
		for _, name := range []string{"", "a", "b", "ab", "a\x00", "0123456789abcdef", "0123456789abcdef0"} {
			h := Session(k, tenant, name)
			if h == 0 || seen[h] != "" {
				t.Errorf("tenant %q, session %q has the hash %x of %q", tenant, name, h, seen[h])
			}
			seen[h] = tenant + "/" + name
		}
	}
	if Session(k, "a", "b") == Session(NewPrefixKey([32]byte{2}), "a", "b") {
		t.Error("two secrets give the same hash")
	}
	if Session(k, "a", "b") != Session(k, "a", []byte("b")) {
		t.Error("bytes give another hash than the same text")
	}
	if n := testing.AllocsPerRun(100, func() { Session(k, "tenant", []byte("a name that is not short")) }); n != 0 {
		t.Errorf("%.0f allocations, want none", n)
	}
}

// TestAnswerID: the name by which an answer is continued is that which the request names it by.
func TestAnswerID(t *testing.T) {
	api := API{Name: "responses", Streams: true, NeedsModel: true}
	var s Stream
	for range 2 {
		s.Reset(api, SSE)
		s.Feed([]byte("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"output\":[{\"id\":\"msg_1\"}]}}\n\n"))
		s.Feed([]byte("event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_2\"}}\n\n"))
		if string(s.ID()) != "resp_1" {
			t.Errorf("the stream is %q", s.ID())
		}
	}
	b := readBody(t, `{"output":[{"id":"msg_1"}],"id":"resp_\u0031","model":"m"}`)
	if string(b.ID()) != `resp_\u0031` {
		t.Errorf("the body is %q", b.ID())
	}
	if b := readBody(t, `{"id":7,"error":{"id":"x"}}`); len(b.ID()) != 0 {
		t.Errorf("the body is %q", b.ID())
	}
}
