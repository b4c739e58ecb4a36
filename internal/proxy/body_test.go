package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sized returns a chat request of size bytes.
func sized(size int) string {
	const head, tail = `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
	return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
}

// bodyOf is a request's body that comes in pieces, as net/http's do, and can be sent again without allocating.
type bodyOf struct {
	data  []byte
	piece int // the most that a read returns; 0 = no bound
	at    int
	late  bool // the end comes with a read of its own
}

func (b *bodyOf) Read(p []byte) (int, error) {
	n := len(b.data) - b.at
	if b.piece > 0 {
		n = min(n, b.piece)
	}
	n = copy(p, b.data[b.at:b.at+n])
	b.at += n
	if b.at == len(b.data) && (!b.late || n == 0) {
		return n, io.EOF
	}
	return n, nil
}

func (b *bodyOf) Close() error { return nil }

// request is one that the reader sees, announced or chunked.
func (b *bodyOf) request(announced bool) *http.Request {
	r := &http.Request{Method: http.MethodPost, Body: b, ContentLength: -1, Header: http.Header{}}
	if announced {
		r.ContentLength = int64(len(b.data))
	}
	return r
}

// However a body comes, it is read as it was sent, up to the last byte that is allowed; its memory is counted while
// it is held and given back once.
func TestBodyIsReadWhole(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const limit = largestClass + 10
	for _, size := range []int{1, 500, smallestClass - 1, smallestClass, smallestClass + 1, firstAnnounced, firstAnnounced + 1,
		64 << 10, smallBody, 1 << 20, largestClass, limit - 1, limit} {
		if raceEnabled && size > 1<<20 {
			continue // large ones are slow there
		}
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		for _, announced := range []bool{true, false} {
			for _, late := range []bool{true, false} {
				for _, piece := range []int{0, 4096, 1 + random.IntN(size)} {
					if size/max(piece, 1) > 1000 && piece > 0 {
						continue // the same, slowly
					}
					name := fmt.Sprintf("%d bytes, announced %v, late end %v, pieces of %d", size, announced, late, piece)
					var m bodyMemory
					var b requestBody
					g := &Generation{MaxBody: limit}
					if e := b.read(newStub(), (&bodyOf{data: data, piece: piece, late: late}).request(announced), &m, g); e != nil {
						t.Errorf("%s: %v", name, e)
						continue
					}
					if !bytes.Equal(b.bytes(), data) {
						t.Errorf("%s: other bytes", name)
					}
					if taken := m.taken.Load(); taken < int64(size) || taken != b.held() {
						t.Errorf("%s: %d bytes counted, %d held", name, taken, b.held())
					}
					b.release()
					b.release()
					if m.taken.Load() != 0 || b.bytes() != nil {
						t.Errorf("%s: %d bytes counted after release", name, m.taken.Load())
					}
				}
			}
		}
	}
}

// What fails on the way holds its memory until release, and no longer.
func TestBodyThatFails(t *testing.T) {
	f := func(name string, r *http.Request, g *Generation, status int, code string) {
		t.Helper()
		var m bodyMemory
		const others = 100
		m.taken.Add(others) // it is not alone
		var b requestBody
		e := b.read(newStub(), r, &m, g)
		if e == nil || e.Status != status || e.Code != code || e.Message == "" {
			t.Errorf("%s: %+v, want %d %s", name, e, status, code)
		}
		if m.taken.Load() != others+b.held() {
			t.Errorf("%s: %d bytes counted, %d held", name, m.taken.Load(), b.held())
		}
		b.release()
		if m.taken.Load() != others {
			t.Errorf("%s: %d bytes counted after release", name, m.taken.Load())
		}
	}
	whole := func(n int) *bodyOf { return &bodyOf{data: make([]byte, n)} }
	f("announced too large", whole(1001).request(true), &Generation{MaxBody: 1000}, 413, "evenkeel_body_too_large")
	f("turns out too large", whole(1001).request(false), &Generation{MaxBody: 1000}, 413, "evenkeel_body_too_large")
	f("larger than a buffer", whole(90001).request(false), &Generation{MaxBody: 90000}, 413, "evenkeel_body_too_large")
	f("no memory at first", whole(1000).request(true), &Generation{MaxBody: 1 << 20, BodyMemory: 1000}, 503, codeBodyMemory)
	f("no memory on the way", whole(1<<20).request(true), &Generation{MaxBody: 1 << 20, BodyMemory: 1 << 20}, 503, codeBodyMemory)
	f("no memory on the way, chunked", whole(1<<20).request(false), &Generation{MaxBody: 1 << 20, BodyMemory: 1 << 20}, 503, codeBodyMemory)
	cut := whole(30000).request(true)
	cut.Body = io.NopCloser(io.MultiReader(io.LimitReader(cut.Body, 25000), errorReader{io.ErrUnexpectedEOF}))
	f("cut", cut, &Generation{MaxBody: 1 << 20}, 400, "evenkeel_body_broken")
	late := whole(30000).request(true)
	late.Body = io.NopCloser(io.MultiReader(io.LimitReader(late.Body, 25000), errorReader{timeout{}}))
	f("late", late, &Generation{MaxBody: 1 << 20}, 408, "evenkeel_body_timeout")
}

type errorReader struct{ error }

func (e errorReader) Read([]byte) (int, error) { return 0, e.error }

type timeout struct{}

func (timeout) Error() string { return "i/o timeout" }
func (timeout) Timeout() bool { return true }

// What is announced costs no memory before it comes; what comes costs a bounded multiple of itself, and is copied
// seldom.
func TestBufferSizes(t *testing.T) {
	for _, announced := range []bool{true, false} {
		for _, most := range []int64{1, 5000, smallestClass, 21 << 10, 64 << 10, 1 << 20, 1<<20 + 100, 30 << 20, 32 << 20, 1 << 30} {
			name := fmt.Sprintf("%d bytes, announced %v", most, announced)
			held, have, copied, grown := int64(0), int64(0), int64(0), 0
			for have < most {
				size := nextSize(held, have, most, announced)
				if size < held || size > most || size <= have {
					t.Fatalf("%s: holding %d with %d bytes: next size %d", name, held, have, size)
				}
				if size > held {
					if size > firstAnnounced && size > trust*(have+1) {
						t.Errorf("%s: %d bytes set aside when %d had come", name, size, have)
					}
					copied += have
					grown++
					held = size
				}
				have = held // a fast client fills it
			}
			if held != most || grown > 11 || copied > 2*most || announced && (grown > 5 || copied > most/8+firstAnnounced) {
				t.Errorf("%s: grown %d times to %d, %d bytes copied", name, grown, held, copied)
			}
		}
	}
}

func TestBufferClasses(t *testing.T) {
	for class := range classes {
		size := int64(smallestClass) << class
		if got := classOf(size); got != class {
			t.Errorf("%d bytes are class %d, want %d", size, got, class)
		}
		if got := classOf(size + 1); got != class+1 && size < largestClass || size == largestClass && got != -1 {
			t.Errorf("%d bytes are class %d", size+1, got)
		}
	}
	if classOf(1) != 0 || classOf(0) != 0 {
		t.Errorf("the smallest are class %d and %d", classOf(0), classOf(1))
	}
}

// The last sixteenth is for small bodies; nothing goes over the bound, and what was refused is not counted.
func TestBodyMemoryBound(t *testing.T) {
	var m bodyMemory
	const bound = 32 << 20
	var large, small []*buffer
	for {
		b := m.take(1<<20, 0, bound)
		if b == nil {
			break
		}
		large = append(large, b)
	}
	taken := m.taken.Load()
	if taken > bound-bound/16 || taken < bound-bound/16-smallestClass<<8 || !m.tight(bound) {
		t.Errorf("%d large ones take %d bytes", len(large), taken)
	}
	for {
		b := m.take(1000, 0, bound)
		if b == nil {
			break
		}
		small = append(small, b)
	}
	if taken := m.taken.Load(); taken > bound || taken < bound-smallestClass {
		t.Errorf("all take %d bytes", taken)
	}
	for _, b := range append(large, small...) {
		m.give(b)
	}
	if m.taken.Load() != 0 || m.tight(bound) {
		t.Errorf("%d bytes are left", m.taken.Load())
	}
}

// Reading a body takes nothing from the heap once there are buffers to use again.
func TestBodyAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget; make test runs this without it")
	}
	w, g := &deadlines{stubWriter: newStub()}, &Generation{MaxBody: 32 << 20}
	var m bodyMemory
	for _, size := range []int{500, 10000, 64 << 10, 1 << 20} {
		for _, announced := range []bool{true, false} {
			body := &bodyOf{data: make([]byte, size), piece: 200 << 10}
			r := body.request(announced)
			var b requestBody
			got := testing.AllocsPerRun(100, func() {
				b, body.at, w.set = requestBody{}, 0, w.set[:0]
				if e := b.read(w, r, &m, g); e != nil || len(b.bytes()) != size {
					t.Fatal(e)
				}
				b.release()
			})
			if got > 0 {
				t.Errorf("%d bytes, announced %v: %v allocations, want 0", size, announced, got)
			}
		}
	}
}

// deadlines notes what a connection's read deadline is set to.
type deadlines struct {
	*stubWriter
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

// A body that comes at once costs one pair of deadlines, however large it is.
func TestBodyDeadlinesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{500, 4 << 20} {
			w := &deadlines{stubWriter: newStub()}
			var m bodyMemory
			var b requestBody
			if e := b.read(w, (&bodyOf{data: make([]byte, size), piece: 4096}).request(true), &m, &Generation{MaxBody: 32 << 20}); e != nil {
				t.Fatal(e)
			}
			b.release()
			if len(w.set) != 2 || !w.set[0].Equal(time.Now().Add(bodyPause)) || !w.set[1].IsZero() {
				t.Errorf("%d bytes: deadlines %v", size, w.set)
			}
		}
	})
}
