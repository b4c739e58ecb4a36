package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"evenkeel/internal/route"
)

// begin sends the head of a request and the first sent bytes of a body of size, and leaves the rest to come.
func (w *world) begin(size, sent int) net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", rawHead, size, sized(max(sent, 100) + 100)[:sent]); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// What does not fit into the memory for bodies is shed with an answer that arrives, and that says when to come back;
// small requests go on, and once there is room large ones do too.
func TestBodiesThatDoNotFitAreShed(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		const bound = 16 << 20
		o.change = func(g *Generation) { g.BodyMemory = bound }
		w := newWorld(t, o, jsonAnswer(200, goodJSON))
		const large = 4900 << 10 // two of them fit
		var held []net.Conn
		if !o.h2 {
			for range 2 {
				held = append(held, w.begin(large, large-1))
			}
		} else {
			w.proxy.bodies.taken.Add(2 * largestClass)
		}
		until(t, "two bodies are held", func() bool { return w.proxy.BodyMemory() == 2*largestClass })

		a := w.post("/v1/chat/completions", sized(large))
		if a.status != 503 || !strings.Contains(a.body, `"code":"`+codeBodyMemory+`"`) || !strings.Contains(a.body, "body_memory") {
			t.Errorf("one too many: %d %s", a.status, a.body)
		}
		if a.header.Get("Retry-After") != "1" || a.header.Get("Retry-After-Ms") != "1000" || a.header.Get("X-Should-Retry") != "" {
			t.Errorf("one too many: %v", a.header)
		}
		if r := w.record(1); r.Status != 503 || r.Failure == nil || r.Failure.Code != codeBodyMemory {
			t.Errorf("its record: %d %+v", r.Status, r.Failure)
		}
		if a := w.post("/v1/chat/completions", sized(64<<10)); a.status != 200 {
			t.Errorf("a small one: %d %s", a.status, a.body)
		}
		for _, c := range held {
			_ = c.Close()
		}
		if o.h2 {
			w.proxy.bodies.taken.Add(-2 * largestClass)
		}
		until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
		if a := w.post("/v1/chat/completions", sized(large)); a.status != 200 {
			t.Errorf("with room: %d %s", a.status, a.body)
		}
		until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
	})
}

// TestTheLargestBodyFitsAlone, also where body_memory is no more than max_body, and however its length is told.
func TestTheLargestBodyFitsAlone(t *testing.T) {
	overBoth(t, func(t *testing.T, o options) {
		const largest = 24 << 20
		o.change = func(g *Generation) { g.BodyMemory, g.MaxBody = largest, largest }
		w := newWorld(t, o, jsonAnswer(200, goodJSON))
		for _, announced := range []bool{true, false} {
			req, err := http.NewRequest(http.MethodPost, w.url+"/v1/chat/completions", strings.NewReader(sized(largest)))
			if err != nil {
				t.Fatal(err)
			}
			if !announced {
				req.ContentLength = -1
			}
			res, err := w.client.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(res.Body); res.StatusCode != 200 || err != nil {
				t.Errorf("announced %v: %d %s (%v)", announced, res.StatusCode, text, err)
			}
			_ = res.Body.Close()
			until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
		}
	})
}

// Whoever announces much and sends nothing takes next to nothing.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	w := newWorld(t, options{}, jsonAnswer(200, goodJSON))
	const clients = 200
	for range clients {
		w.begin(32<<20, 1)
	}
	until(t, "all have begun", func() bool { return w.proxy.Running() == clients })
	until(t, "all hold a buffer", func() bool { return w.proxy.BodyMemory() == clients*firstAnnounced })
}

// TestManyLargeUploads: what large bodies allocate is their size and little more, so that no collector is needed to
// keep them near it.
func TestManyLargeUploads(t *testing.T) {
	const uploads = 10
	size := 30 << 20
	if raceEnabled {
		size /= 3 // it is about memory, and slow
	}
	arrived, leave := make(chan struct{}, uploads), make(chan struct{})
	w := newWorld(t, options{}, func(rw http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-leave
		jsonAnswer(200, goodJSON)(rw, r)
	})
	body := sized(size)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for range uploads {
		all.Go(func() {
			status, answer := w.sendRaw(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", rawHead, size), body)
			if status != 200 || answer != goodJSON {
				t.Errorf("%d %s", status, answer)
			}
		})
	}
	for range uploads {
		within(t, "an upload at its upstream", arrived)
	}
	runtime.ReadMemStats(&after)
	held := w.proxy.BodyMemory()
	close(leave)
	all.Wait()
	if held != int64(uploads*size) {
		t.Errorf("%d bytes are counted, want %d", held, uploads*size)
	}
	allocated := int64(after.TotalAlloc - before.TotalAlloc)
	t.Logf("%d MB allocated for %d MB of bodies; the heap grew from %d to %d MB", allocated>>20, uploads*size>>20, before.HeapAlloc>>20, after.HeapAlloc>>20)
	if allocated > int64(uploads*(size+3<<20)) {
		t.Errorf("%d MB allocated for %d MB of bodies", allocated>>20, uploads*size>>20)
	}
	until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
}

// Large bodies that come one after another take the memory of one or two, not what the garbage collector would let
// gather, be it with a length or without.
func TestLargeBodiesLeaveLittleGarbage(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // never by itself
	const bound, size = 160 << 20, 10 << 20
	data := make([]byte, size)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, announced := range []bool{true, false} {
		runtime.GC()
		base, most := heap(), int64(0)
		var m bodyMemory
		for range 40 {
			var b requestBody
			if e := b.read(newStub(), (&bodyOf{data: data, piece: 1 << 20}).request(announced), &m, &Generation{MaxBody: 32 << 20, BodyMemory: bound}); e != nil {
				t.Fatal(e)
			}
			b.release()
			most = max(most, heap()-base)
		}
		t.Logf("announced %v: up to %d MB", announced, most>>20)
		if most > bound/8+4*size {
			t.Errorf("announced %v: the heap grew by %d MB for bodies of %d MB", announced, most>>20, size>>20)
		}
	}
}

// marked returns a chat request of about size bytes, all of which tell which one it is: the model, then blocks of 16
// bytes that are alike.
func marked(id uint64, size int) string {
	block := fmt.Sprintf("%016x", id)
	return `{"model":"m","x":"` + strings.Repeat(block, max(size/16, 1)) + `"}`
}

// unmixed reads a marked request as far as it comes and reports whether it is all of one piece.
func unmixed(r io.Reader, model string) (whole bool, err error) {
	br := bufio.NewReader(r)
	head := make([]byte, len(`{"model":"`+model+`","x":"`))
	if n, err := io.ReadFull(br, head); err != nil {
		return false, prefixOf(head[:n], `{"model":"`+model+`","x":"`)
	}
	if err := prefixOf(head, `{"model":"`+model+`","x":"`); err != nil {
		return false, err
	}
	first, block := make([]byte, 16), make([]byte, 16)
	if _, err := io.ReadFull(br, first); err != nil {
		return false, nil
	}
	for {
		n, err := io.ReadFull(br, block)
		switch {
		case err == nil && bytes.Equal(block, first):
		case err == nil:
			return false, fmt.Errorf("%q among %q", block, first)
		case string(block[:n]) == `"}`:
			return true, nil
		case n == 0 || bytes.HasPrefix(first, block[:n]) || string(block[:n]) == `"`:
			return false, nil
		default:
			return false, fmt.Errorf("%q at the end of %q", block[:n], first)
		}
	}
}

func prefixOf(got []byte, want string) error {
	if !strings.HasPrefix(want, string(got)) {
		return fmt.Errorf("begins with %q, want %q", got, want)
	}
	return nil
}

// Buffers are used again while requests end in every way, with endpoints that answer before they have read, break off,
// or are left: no request ever sends another's bytes.
func TestBodiesAreNotMixedUp(t *testing.T) {
	var whole atomic.Int64
	seen := func(t *testing.T, r io.Reader) {
		ok, err := unmixed(r, "upstream's-name")
		if err != nil {
			t.Errorf("upstream got %v", err)
		}
		if ok {
			whole.Add(1)
		}
	}
	reads := func(rw http.ResponseWriter, r *http.Request) {
		seen(t, r.Body)
		jsonAnswer(200, goodJSON)(rw, r)
	}
	early := func(rw http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(rw).EnableFullDuplex() // reads on after it has answered
		rw.Header().Set("Content-Length", fmt.Sprint(len(goodJSON)))
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, goodJSON)
		rw.(http.Flusher).Flush()
		seen(t, r.Body)
	}
	breaks := func(rw http.ResponseWriter, r *http.Request) {
		seen(t, io.LimitReader(r.Body, 100<<10))
		reset(hijack(t, rw))
	}
	w := newWorld(t, options{alias: "upstream's-name", strategy: "round_robin"}, reads, early, reads, breaks)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	defer transport.CloseIdleConnections()
	n := 2000
	if raceEnabled || testing.Short() {
		n = 300
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				random := rand.New(rand.NewPCG(7, uint64(i)))
				size := 1 << (6 + random.IntN(15)) // to 1 MB
				req := w.request(t.Context(), "/v1/chat/completions", marked(random.Uint64(), size+random.IntN(size)))
				if random.IntN(2) == 0 {
					req.ContentLength = -1
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body) // breaks is asked again and again: any status will do
				_ = res.Body.Close()
			}
		})
	}
	all.Wait()
	w.idle()
	until(t, "no body is held", func() bool { return w.proxy.BodyMemory() == 0 })
	if got := whole.Load(); got < int64(n)/2 {
		t.Errorf("only %d of %d came whole: the test does not test", got, n)
	}
}

// everyNth is a strategy with a bug that shows now and then.
type everyNth struct{ picks, n atomic.Int64 }

func (e *everyNth) Pick(r *route.Round) int {
	if e.picks.Add(1)%e.n.Load() == 0 {
		panic("a bug in a strategy")
	}
	return int(e.picks.Load()) % len(r.Candidates)
}

// However thousands of requests end, in whatever order, nothing is held of them afterwards.
func TestBodyMemoryComesBack(t *testing.T) {
	endpoint := func(rw http.ResponseWriter, r *http.Request) {
		switch rand.IntN(5) { // which request meets which endpoint is random anyhow
		case 0:
			jsonAnswer(500, `{}`)(rw, r)
		case 1:
			reset(hijack(t, rw))
		case 2:
			_, _ = io.WriteString(rw, goodJSON)
		case 3:
			sse(roleEvent, delta("a"), delta("b"), finishEvent, doneEvent)(rw, r)
		default:
			jsonAnswer(200, goodJSON)(rw, r)
		}
	}
	const bound, limit = 2 << 20, 256 << 10
	w := newWorld(t, options{change: func(g *Generation) { g.BodyMemory, g.MaxBody = bound, limit }}, endpoint, endpoint)
	buggy := &everyNth{}
	buggy.n.Store(50)
	w.adopt(buggy)
	n := 4000
	if raceEnabled || testing.Short() {
		n = 1000
	}
	var next atomic.Int64
	var all sync.WaitGroup
	var most atomic.Int64
	statuses := newTally()
	for range 32 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				most.Store(max(most.Load(), w.proxy.BodyMemory())) // nearly
				statuses.add(w.misbehave(rand.New(rand.NewPCG(11, uint64(i))), limit))
			}
		})
	}
	all.Wait()
	until(t, "nobody is served any more", func() bool { return w.proxy.Running() == 0 })
	if held := w.proxy.BodyMemory(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
	if most.Load() > bound {
		t.Errorf("%d bytes were held, the bound is %d", most.Load(), bound)
	}
	for _, status := range []int{0, 200, 400, 404, 413, 500, 503} {
		if statuses.of(status) == 0 {
			t.Errorf("no request ended with %d: the test does not test that", status)
		}
	}
	t.Logf("%v, up to %d bytes held", statuses.count, most.Load())
}

// misbehave sends one request of up to a bit more than limit bytes in some good or bad way, and returns the status of
// its answer, 0 if it did not wait for one.
func (w *world) misbehave(random *rand.Rand, limit int) int {
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Error(err)
		return 0
	}
	defer c.Close()
	size := 64 << random.IntN(13)
	body := sized(size + random.IntN(size))
	framed := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", rawHead, len(body), body)
	if random.IntN(2) == 0 {
		framed = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", rawHead, len(body), body)
	}
	switch random.IntN(6) {
	case 0:
		framed = strings.Replace(framed, `"m"`, `"nobody's"`, 1)[:len(framed)-20] // does not end
		_, _ = io.WriteString(c, framed)
		return 0
	case 1:
		_, _ = io.WriteString(c, framed[:random.IntN(len(framed))])
		reset(c)
		return 0
	case 2:
		_, _ = io.WriteString(c, framed)
		_ = c.Close() // does not wait
		return 0
	case 3:
		framed = strings.Replace(framed, `"m"`, `"n"`, 1)
	case 4:
		framed = fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nxyz\r\n", rawHead, len(body), body)
	}
	go func() { _, _ = io.WriteString(c, framed) }() // ends when the connection is closed
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body) // may be cut
	return res.StatusCode
}

// tally counts by number. Safe for concurrent use.
type tally struct {
	mu    sync.Mutex
	count map[int]int
}

func newTally() *tally { return &tally{count: map[int]int{}} }

func (t *tally) add(i int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[i]++
}

func (t *tally) of(i int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count[i]
}
