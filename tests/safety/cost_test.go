package safety

import (
	"crypto/sha256"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/tests/harness"
)

const (
	// worstCPU is how much more CPU time a byte of an attacker may cost than one of an honest request of the same size.
	// Measured on a quiet machine, none costs more than 9 times.
	worstCPU = 20
	// worstMemory is how many bytes of memory a byte of an attacker may hold.
	worstMemory = 100
	// enough is the CPU time after which a measurement ends: ten times what /proc resolves.
	enough = 100 * time.Millisecond
)

// gauge reads a metric without labels.
func gauge(t testing.TB, e *harness.Balancer, name string) float64 {
	t.Helper()
	_, page, err := harness.Get(e.AdminURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "\n"+name+" ")
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(line, 64)
	if !ok || err != nil {
		t.Fatalf("metric %s: %q", name, line)
	}
	return v
}

// cost returns the CPU time that evenkeel takes for one request, and the status of its answers. A request that closes
// its connection pays for the next one. The measurement ends when it has taken enough CPU time.
func cost(t testing.TB, e *harness.Balancer, raw string, enough time.Duration) (perRequest time.Duration, status int) {
	t.Helper()
	cpu := func() time.Duration {
		return time.Duration(gauge(t, e, "process_cpu_seconds_total") * float64(time.Second))
	}
	method, _, _ := strings.Cut(raw, " ")
	var c *client
	requests := 0
	begun := cpu()
	for batch := 20; ; batch *= 2 {
		for range batch {
			if c == nil {
				c = dial(t, e.URL)
			}
			c.send(raw)
			a := c.next(method)
			if a.status != 0 {
				status = a.status
			}
			if a.err != nil || a.header.Get("Connection") == "close" {
				c.Close()
				c = nil
			}
			requests++
		}
		if used := cpu() - begun; used >= enough || requests > 20000 {
			if c != nil {
				c.Close()
			}
			return used / time.Duration(requests), status
		}
	}
}

// heads are requests that end in their head, or are meant to cost much there.
func heads() map[string]string {
	long := func(name, item string, bytes int) string {
		return post(chatPath, chatBody, name+": "+strings.Repeat(item, bytes/len(item)))
	}
	lines := func(n int, f func(int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = f(i)
		}
		return post(chatPath, chatBody, all...)
	}
	const big = 60 << 10
	distinct := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	return map[string]string{
		"no path":                  request("GET / HTTP/1.1", ""),
		"a bad path":               request("GET //x HTTP/1.1", ""),
		"a long path of dots":      request("GET /v1/"+strings.Repeat(".../", big/4)+"x HTTP/1.1", ""),
		"a long encoded path":      request("GET /v1/"+strings.Repeat("%C3%A9", big/6)+" HTTP/1.1", ""),
		"a bad method":             request("GOT /v1/files HTTP/1.1", ""),
		"health":                   request("GET /livez HTTP/1.1", ""),
		"readiness":                request("GET /readyz HTTP/1.1", ""),
		"models":                   request("GET /v1/models HTTP/1.1", ""),
		"one model":                request("GET /v1/models/"+strings.Repeat("a", big)+" HTTP/1.1", ""),
		"a wrong key":              request("GET /v1/models HTTP/1.1", "", "Authorization: Bearer WRONG"),
		"a long wrong key":         long("X-Api-Key", "k", big),
		"many wrong keys":          lines(90, func(i int) string { return fmt.Sprintf("Authorization: Bearer k%d", i) }),
		"as many lines as may be":  lines(90, func(i int) string { return fmt.Sprintf("X-%d: a", i) }),
		"more lines than may be":   lines(5000, func(i int) string { return fmt.Sprintf("X-%d: a", i) }),
		"equal lines":              lines(5000, func(int) string { return "A: a" }),
		"names in Connection":      post(chatPath, chatBody, "Connection: "+distinct(big/8, "x-%05d,")),
		"commas in Connection":     long("Connection", ",", big),
		"parameters":               strings.Replace(post(chatPath, chatBody), chatPath, chatPath+"?"+strings.Repeat("a&", big/2), 1),
		"encoded parameters":       strings.Replace(post(chatPath, chatBody), chatPath, chatPath+"?"+strings.Repeat("%61&", big/4), 1),
		"names to exclude":         long("X-Evenkeel-Exclude", "a,", 4<<10-10),
		"a duration":               long("X-Evenkeel-Timeout", "1s", 4<<10-10),
		"a number":                 long("X-Stainless-Timeout", "9", big),
		"parameters of a type":     strings.Replace(post(chatPath, chatBody), "application/json", "multipart/form-data; boundary=b"+distinct(big/10, "; a%04d=b"), 1),
		"quotes in a type":         strings.Replace(post(chatPath, chatBody), "application/json", `multipart/form-data; boundary="`+strings.Repeat(`\"`, big/2), 1),
		"accepted encodings":       long("Accept-Encoding", "gzip;q=0,", big),
		"a trailing chunk":         request("POST "+chatPath+" HTTP/1.1", chunked(chatBody), "Transfer-Encoding: chunked"),
		"chunks of a byte":         request("POST "+chatPath+" HTTP/1.1", strings.Repeat("1\r\n \r\n", 2000)+chunked(chatBody), "Transfer-Encoding: chunked"),
		"a chunk with extensions":  request("POST "+chatPath+" HTTP/1.1", strings.Repeat("1;"+strings.Repeat("e", 50)+"\r\n \r\n", 200)+chunked(chatBody), "Transfer-Encoding: chunked"),
		"a bad chunk":              request("POST "+chatPath+" HTTP/1.1", "zz\r\n", "Transfer-Encoding: chunked"),
		"hops":                     post(chatPath, chatBody, "X-Evenkeel-Hops: 9"),
		"a model that there isn't": post(chatPath, `{"model":"x"}`),
	}
}

// bodies are of about a megabyte, or as large as their kind can be.
func bodies() map[string]string {
	const big = 1 << 20
	fill := func(begin, item, end string) string {
		return begin + strings.Repeat(item, (big-len(begin)-len(end))/len(item)) + end
	}
	var keys strings.Builder
	for i := range big / 12 {
		fmt.Fprintf(&keys, `"k%06d":1,`, i)
	}
	form := func(body string) string {
		return request("POST /v1/audio/transcriptions HTTP/1.1", body, "Content-Type: multipart/form-data; boundary=b", fmt.Sprintf("Content-Length: %d", len(body)))
	}
	json := func(body string) string { return post(chatPath, body) }
	return map[string]string{
		"brackets":             json(fill("", "[", "")),
		"braces":               json(fill("", `{"a":`, "")),
		"nested below a field": json(fill(`{"model":"m","x":`, "[", "")),
		"blanks":               json(fill("", " ", "x")),
		"escapes":              json(fill(`{"model":"m","x":"`, `\u0061`, `"}`)),
		"backslashes":          json(fill(`{"model":"m","x":"`, `\\`, `"}`)),
		"an escaped model":     json(fill(`{"model":"`, `\u0061`, `"}`)),
		"keys":                 json(`{` + keys.String() + `"model":"m"}`),
		"keys that look alike": json(fill(`{"model":"m"`, `,"mode":1`, "}")),
		"messages":             json(fill(`{"model":"m","messages":[`, `{},`, `{}]}`)),
		"messages with text":   json(fill(`{"model":"m","messages":[`, `{"role":"user","content":"a"},`, `{}]}`)),
		"content parts":        json(fill(`{"model":"m","messages":[{"role":"user","content":[`, `{"type":"text","text":"a"},`, `{}]}]}`)),
		"tools":                json(fill(`{"model":"m","tools":[`, `{"type":"function"},`, `{}],"messages":[]}`)),
		"numbers":              json(fill(`{"model":"m","x":[`, `1e9,`, `1]}`)),
		"one number":           json(fill(`{"model":"m","max_tokens":`, `9`, `}`)),
		"boundaries":           form(fill("--b\r\n", "--b\r\n", "--b--\r\n")),
		"almost boundaries":    form(fill("--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n", "\r\n--", "\r\n--b--\r\n")),
		"parts":                form(fill("", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n", "--b--\r\n")),
		"lines of a part":      form(fill("--b\r\n", "A: a\r\n", "\r\n\r\nx\r\n--b--\r\n")),
		"not JSON":             json(fill("", "x", "")),
		"not UTF-8":            json(fill(`{"model":"m","x":"`, "\xff", `"}`)),
	}
}

// honest is a request of a size that asks for what it says.
func honest(size int) string {
	const begin, end = `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
	text := strings.Repeat("the quick brown fox jumps over the lazy dog ", size/44+1)[:max(0, size-len(begin)-len(end))]
	return post(chatPath, begin+text+end)
}

// TestC63CostOfAttackers: no request costs much more CPU time per byte than an honest one of its size, on any route.
func TestC63CostOfAttackers(t *testing.T) {
	b := newBackend(t)
	open := serveBefore(t, b)
	locked := serveBefore(t, b, fmt.Sprintf("virtual_keys: [{name: key, sha256: %x}]", sha256.Sum256([]byte("KEY"))))
	perByte := func(e *harness.Balancer, raw string) (float64, int) {
		d, status := cost(t, e, raw, enough)
		b.take()
		return float64(d) / float64(len(raw)), status
	}
	least, _ := perByte(open, post(chatPath, chatBody))
	least *= float64(len(post(chatPath, chatBody))) // the time of the smallest request that is served
	sizes := []int{400, 4 << 10, 60 << 10, 1 << 20}
	base := map[int]float64{}
	for _, n := range sizes {
		var status int
		if base[n], status = perByte(open, honest(n)); status != 200 {
			t.Fatalf("an honest request of %d bytes: %d", n, status)
		}
		t.Logf("an honest request of %7d bytes: %8.2f ns/byte", n, base[n])
	}
	judge := func(e *harness.Balancer, what, raw string) {
		size := sizes[0] // the largest honest one that is not larger: its bytes are dearer than those of a larger one
		for _, n := range sizes {
			if len(raw) >= n*9/10 {
				size = n
			}
		}
		got, status := perByte(e, raw)
		t.Logf("%-28s %7d bytes → %d: %8.2f ns/byte, %5.2f of an honest one's", what, len(raw), status, got, got/base[size])
		if got > worstCPU*base[size] && got*float64(len(raw)) > least { // what a request takes, however small, is not a matter of bytes
			t.Errorf("%s: a byte costs %.1f times that of an honest request", what, got/base[size])
		}
	}
	for what, raw := range heads() {
		judge(open, what, raw)
	}
	for _, what := range []string{"a wrong key", "a long wrong key", "many wrong keys", "models", "names in Connection", "parameters"} {
		judge(locked, what+", keys", heads()[what])
	}
	for what, raw := range bodies() {
		judge(open, what, raw)
	}
}

// TestC63MemoryOfAttackers: what unfinished requests hold is in proportion to what was sent.
func TestC63MemoryOfAttackers(t *testing.T) {
	e := serveBefore(t, newBackend(t))
	held := func() float64 {
		if status, _, err := harness.Get(e.AdminURL + "/debug/pprof/heap?gc=1"); status != 200 || err != nil { // what is garbage is not held
			t.Fatalf("a heap profile: %d, %v", status, err)
		}
		return gauge(t, e, "go_memstats_heap_alloc_bytes") + gauge(t, e, "go_memstats_stack_inuse_bytes")
	}
	var lines strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&lines, "x-%d:\r\n", i)
	}
	chat := "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for what, raw := range map[string]string{
		"a head of many lines":     chat + lines.String(),
		"a head of one line":       chat + "X-A: " + strings.Repeat("a", 60<<10),
		"a body that begins":       chat + "Content-Length: 33000000\r\n\r\n" + strings.Repeat(" ", 20<<10),
		"a body in chunks":         chat + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\n \r\n", 4<<10),
		"a body that is announced": chat + "Content-Length: 33000000\r\n\r\n ",
		"an empty chunk":           chat + "Transfer-Encoding: chunked\r\n\r\n1fffff\r\n ",
	} {
		const connections = 200
		held() // what pools keep outlives one collection
		before := held()
		var open []net.Conn
		for range connections {
			c := dial(t, e.URL)
			c.send(raw)
			open = append(open, c)
		}
		most, level := 0.0, 0
		harness.Eventually(t, patience, "all that was sent is read", func() bool {
			if gauge(t, e, "go_goroutines") < connections {
				return false
			}
			if now := held(); now > most*1.01 {
				most, level = now, 0
			} else {
				level++
			}
			return level == 5
		})
		perByte := (most - before) / float64(connections*len(raw))
		perConnection := (most - before) / connections
		t.Logf("%-26s %6d bytes each: %6.1f bytes held per byte, %7.0f per connection", what, len(raw), perByte, perConnection)
		if perByte > worstMemory && perConnection > 64<<10 { // what a connection takes is not a matter of bytes
			t.Errorf("%s: %.0f bytes held per byte sent, %.0f per connection", what, perByte, perConnection)
		}
		for _, c := range open {
			c.Close()
		}
		harness.Eventually(t, patience, "they are forgotten", func() bool { return gauge(t, e, "go_goroutines") < connections })
	}
	if a := ask(t, e.URL, post(chatPath, chatBody)); a.status != 200 {
		t.Errorf("after it: %d (%v)", a.status, a.err)
	}
}

// TestC64LinearCost: four times as much of anything costs four times as much, not sixteen times.
func TestC64LinearCost(t *testing.T) {
	b := newBackend(t)
	e := serveBefore(t, b)
	many := func(begin, item, end string) func(int) string {
		return func(n int) string { return post(chatPath, begin+strings.Repeat(item, n)+end) }
	}
	for what, c := range map[string]struct {
		n    int
		make func(int) string
	}{
		"messages":    {10000, many(`{"model":"m","messages":[`, `{"role":"user","content":"hello there"},`, `{"role":"user","content":"x"}]}`)},
		"tools":       {10000, many(`{"model":"m","tools":[`, `{"type":"function","function":{"name":"f","parameters":{}}},`, `{}],"messages":[]}`)},
		"parts":       {10000, many(`{"model":"m","messages":[{"role":"user","content":[`, `{"type":"text","text":"hello"},`, `{}]}]}`)},
		"other keys":  {10000, many(`{"model":"m"`, `,"extra":1`, `}`)},
		"depth":       {50000, many(`{"model":"m","x":`, `[`, ``)},
		"connections": {1500, func(n int) string { return post(chatPath, chatBody, "Connection: "+strings.Repeat("x-abcdef,", n)) }},
		"parameters": {3500, func(n int) string {
			return strings.Replace(post(chatPath, chatBody), chatPath, chatPath+"?"+strings.Repeat("a=b&", n), 1)
		}},
		"headers": {20, func(n int) string {
			lines := make([]string, n)
			for i := range lines {
				lines[i] = fmt.Sprintf("X-Stainless-%d: %s", i, strings.Repeat("v", 100))
			}
			return post(chatPath, chatBody, lines...)
		}},
	} {
		one, status := cost(t, e, c.make(c.n), 3*enough)
		four, _ := cost(t, e, c.make(4*c.n), 3*enough)
		b.take()
		ratio := float64(four) / float64(one)
		t.Logf("%-12s %6d: %10v → %d, %6d: %10v, ratio %.2f", what, c.n, one, status, 4*c.n, four, ratio)
		if ratio > 4*1.4 {
			t.Errorf("%s: four times as many cost %.1f times as much", what, ratio)
		}
	}
}
