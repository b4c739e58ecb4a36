package mock

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
)

// Recorded is one request as the engine received it.
type Recorded struct {
	Method string      `json:"method"`
	Path   string      `json:"path"` // the request target: path and query
	Host   string      `json:"host"`
	Header http.Header `json:"header"` // names in canonical form, without Host
	Body   []byte      `json:"body"`   // without transfer encoding
}

// recorder keeps the last requests. Safe for concurrent use.
type recorder struct {
	keep int
	mu   sync.Mutex
	ring []Recorded
	next int // where the next one goes once the ring is full
}

func (r *recorder) add(req *http.Request, body []byte) {
	if r.keep == 0 {
		return
	}
	rec := Recorded{Method: req.Method, Path: req.RequestURI, Host: req.Host, Header: req.Header, Body: bytes.Clone(body)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.keep {
		r.ring = append(r.ring, rec)
		return
	}
	r.ring[r.next] = rec
	r.next = (r.next + 1) % r.keep
}

// Requests returns the last Config.Record requests of every kind except the engine's own control, oldest first. The
// headers and bodies are shared and must not be changed.
func (e *Engine) Requests() []Recorded {
	e.record.mu.Lock()
	defer e.record.mu.Unlock()
	return slices.Concat(e.record.ring[e.record.next:], e.record.ring[:e.record.next])
}
