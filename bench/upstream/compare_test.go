// Package compare weighs evenkeel's upstream connections against fasthttp's HostClient and net/http's Transport:
// the same requests to the same server, all in one process. It is a module of its own so that the product does
// not depend on what it is compared with.
//
//	go test -bench . -benchtime 2s -count 5
//
// Beside Go's figures it reports, of the whole process and so with the server's part, which is the same for all:
// CPU time, and the read and write system calls.
package compare

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"evenkeel/internal/upstream"

	"github.com/valyala/fasthttp"
)

const head = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\nContent-Type: application/json\r\n"

var (
	small  = head + "Content-Length: 2\r\n\r\n{}"
	stream = head + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("f8\r\ndata: "+strings.Repeat("x", 240)+"\n\n\r\n", 100) + "0\r\n\r\n"
)

// serve answers each request whose body has size bytes, without allocating.
func serve(b *testing.B, size int, answer string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go one(c, size, []byte(answer))
		}
	}()
	return l.Addr().String()
}

// one serves a connection until the client closes it.
func one(c net.Conn, size int, answer []byte) {
	defer c.Close()
	br := bufio.NewReaderSize(c, 64<<10)
	for {
		for blank := false; !blank; {
			line, err := br.ReadSlice('\n')
			if err != nil {
				return
			}
			blank = len(line) == 2
		}
		if _, err := br.Discard(size); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// client makes one request and reads the whole answer.
type client interface {
	post(body []byte) (int, error)
}

type own struct {
	e    *upstream.Endpoint
	h    http.Header
	stop upstream.Stop
	room []byte
}

func (o *own) post(body []byte) (int, error) {
	o.stop.Reset()
	res, err := o.e.Do(&o.stop, &upstream.Request{Method: "POST", Path: "/v1/chat/completions", Header: o.h, Body: [3][]byte{body}})
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return drain(res.Body, o.room)
}

func drain(r io.Reader, room []byte) (total int, err error) {
	for {
		n, err := r.Read(room)
		total += n
		if err == io.EOF {
			return total, nil
		} else if err != nil {
			return total, err
		}
	}
}

type standard struct {
	t    *http.Transport
	url  string
	h    http.Header
	room []byte
}

func (s *standard) post(body []byte) (int, error) {
	req, err := http.NewRequest("POST", s.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header = s.h
	res, err := s.t.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	return drain(res.Body, s.room)
}

// fast streams answers, as a proxy of streams must.
type fast struct {
	c    *fasthttp.HostClient
	url  string
	h    http.Header
	room []byte
}

func (f *fast) post(body []byte) (int, error) {
	req, res := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(res)
	req.SetRequestURI(f.url)
	req.Header.SetMethod("POST")
	for name, values := range f.h {
		req.Header.Set(name, values[0])
	}
	req.SetBodyRaw(body)
	if err := f.c.Do(req, res); err != nil {
		return 0, err
	}
	defer res.CloseBodyStream()
	if s := res.BodyStream(); s != nil {
		return drain(s, f.room)
	}
	return len(res.Body()), nil
}

func clients(b *testing.B, addr string) map[string]client {
	h := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"OpenAI/Python 1.0"}, "Accept": {"application/json"}}
	e, err := upstream.New(upstream.Options{Name: "e", URL: "http://" + addr})
	if err != nil {
		b.Fatal(err)
	}
	t := &http.Transport{DisableCompression: true}
	f := &fasthttp.HostClient{Addr: addr, StreamResponseBody: true, NoDefaultUserAgentHeader: true}
	b.Cleanup(func() { e.Close(); t.CloseIdleConnections(); f.CloseIdleConnections() })
	url := "http://" + addr + "/v1/chat/completions"
	room := make([]byte, 16<<10)
	return map[string]client{"own": &own{e: e, h: h, room: room}, "fasthttp": &fast{f, url, h, room}, "net-http": &standard{t, url, h, room}}
}

// spent is the process's CPU time in microseconds, and its read and write system calls.
func spent(b *testing.B) (cpu, reads, writes float64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	cpu = float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return cpu, 0, 0
	}
	for line := range strings.Lines(string(text)) {
		_, _ = fmt.Sscanf(line, "syscr: %g", &reads)
		_, _ = fmt.Sscanf(line, "syscw: %g", &writes)
	}
	return cpu, reads, writes
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, cell := range []struct {
		name   string
		size   int
		answer string
		want   int
	}{{"1KB", 1000, small, 2}, {"64KB", 64 << 10, small, 2}, {"1MB", 1 << 20, small, 2}, {"100chunks", 1000, stream, 24800}} {
		for _, name := range []string{"own", "fasthttp", "net-http"} {
			b.Run(cell.name+"/"+name, func(b *testing.B) {
				c := clients(b, serve(b, cell.size, cell.answer))[name]
				body := bytes.Repeat([]byte("x"), cell.size)
				if n, err := c.post(body); err != nil || n != cell.want {
					b.Fatalf("%d bytes, %v, want %d", n, err, cell.want)
				}
				b.ReportAllocs()
				cpu, reads, writes := spent(b)
				for b.Loop() {
					if _, err := c.post(body); err != nil {
						b.Fatal(err)
					}
				}
				cpu2, reads2, writes2 := spent(b)
				n := float64(b.N)
				b.ReportMetric((cpu2-cpu)/n, "cpu-µs/op")
				b.ReportMetric((reads2-reads)/n, "reads/op")
				b.ReportMetric((writes2-writes)/n, "writes/op")
			})
		}
	}
}
