package upstream

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"regexp"
	"strings"
	"testing"
)

// decoding is what a decoder made of a chunked body.
type decoding struct {
	data string
	used int   // bytes of the input
	err  error // io.EOF at the body's end; nil: there must be more to come
}

// decodePieces decodes in as it comes in pieces, with room for most bytes of data at a time.
func decodePieces(most int, pieces ...[]byte) (got decoding) {
	var d chunks
	out := make([]byte, most)
	for _, in := range pieces {
		for {
			var wrote, read int
			wrote, read, got.err = d.decode(out, in)
			got.data += string(out[:wrote])
			got.used += read
			if in = in[read:]; got.err != nil {
				return got
			}
			if wrote == 0 {
				break
			}
		}
		if len(in) > 0 {
			panic("the decoder stopped without need")
		}
	}
	return got
}

func bytewise(in []byte) (pieces [][]byte) {
	for i := range in {
		pieces = append(pieces, in[i:i+1])
	}
	return pieces
}

// TestChunks names what a chunked body may be, and what it must not be, in the order of RFC 9112 §7.1.
func TestChunks(t *testing.T) {
	f := func(in, data string, used int, err error) {
		t.Helper()
		want := decoding{data, used, err}
		if used < 0 {
			want.used = len(in)
		}
		if got := decodePieces(64, []byte(in)); got != want {
			t.Errorf("%.60q: %+v, want %+v", in, got, want)
		}
		for i := max(len(in)-300, 0); i < len(in); i++ {
			if got := decodePieces(64, []byte(in[:i]), []byte(in[i:])); got != want {
				t.Errorf("%.60q in two at %d: %+v, want %+v", in, i, got, want)
			}
		}
		if got := decodePieces(1, bytewise([]byte(in))...); got != want {
			t.Errorf("%.60q byte by byte: %+v, want %+v", in, got, want)
		}
	}
	f("", "", -1, nil)
	f("2\r\nok\r\n0\r\n\r\n", "ok", -1, io.EOF)
	f("1\r\no\r\n00001\r\nk\r\n000\r\n\r\n", "ok", -1, io.EOF)
	f("0\r\n\r\nHTTP/1.1 200 OK\r\n", "", 5, io.EOF)
	f("2\r\nok\r\n0\r\n\r", "ok", -1, nil)
	f("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", -1, io.EOF)
	f("0000000000000002\r\nok\r\n0\r\n\r\n", "ok", -1, io.EOF)
	f("3\r\no\r\n\r\n0\r\n\r\n", "o\r\n", -1, io.EOF)

	// Sizes.
	f("\r\nok", "", 0, errChunkSize)
	f("\nok", "", 0, errChunkSize)
	f(";a\r\n", "", 0, errChunkSize)
	f("2\r\nok\r\n\r\n", "ok", 7, errChunkSize)
	f("+2\r\nok\r\n", "", 0, errChunkSize)
	f("-2\r\nok\r\n", "", 0, errChunkSize)
	f(" 2\r\nok\r\n", "", 0, errChunkSize)
	f("2 \r\nok\r\n", "", 1, errChunkSize)
	f("2\t\r\nok\r\n", "", 1, errChunkSize)
	f("2 ;a\r\nok\r\n", "", 1, errChunkSize)
	f("0x2\r\nok\r\n", "", 1, errChunkSize)
	f("2g\r\nok\r\n", "", 1, errChunkSize)
	f("1_0\r\nok\r\n", "", 1, errChunkSize)
	f("2\x00\r\nok\r\n", "", 1, errChunkSize)
	f("\xb2\r\nok\r\n", "", 0, errChunkSize)
	f("00000000000000002\r\nok\r\n", "", 16, errChunkTooLarge)
	f("0fffffffffffffff\r\nok", "ok", -1, nil)
	f("1000000000000000\r\nok", "", 15, errChunkTooLarge)
	f("8000000000000000\r\nok", "", 15, errChunkTooLarge)
	f("ffffffffffffffff\r\nok", "", 15, errChunkTooLarge)
	f("10000000000000002\r\nok", "", 15, errChunkTooLarge)

	// Ends of lines.
	f("2\nok\r\n", "", 1, errChunkSize)
	f("2\rok\r\n", "", 2, errChunkLine)
	f("2\r\r\nok\r\n", "", 2, errChunkLine)
	f("2;\nok\r\n", "", 2, errChunkLine)
	f("2;a\r;b\r\nok\r\n", "", 4, errChunkLine)
	f("2\r\nokX", "ok", 5, errChunkEnd)
	f("2\r\nok\n0\r\n\r\n", "ok", 5, errChunkEnd)
	f("2\r\nok\rX", "ok", 6, errChunkEnd)
	f("2\r\nok0\r\n\r\n", "ok", 5, errChunkEnd)

	// Extensions.
	f("2;\r\nok\r\n0;a=b;c=\"d;e\"\r\n\r\n", "ok", -1, io.EOF)
	f("2;a \r\nok\r\n0\r\n\r\n", "ok", -1, io.EOF)
	f("2;"+strings.Repeat("x", maxChunkLine-4)+"\r\nok\r\n0\r\n\r\n", "ok", -1, io.EOF)
	f("2;"+strings.Repeat("x", maxChunkLine-3)+"\r\nok\r\n0\r\n\r\n", "", maxChunkLine-2, errChunkLine)

	// Trailer.
	f("0\r\nX: y\r\nZ:\r\n\r\n", "", -1, io.EOF)
	f("0\r\nX: y\r\n", "", -1, nil)
	f("0\r\n\n", "", 3, errField)
	f("0\r\n\rX", "", 4, errField)
	f("0\r\nX: y\n\r\n", "", 7, errField)
	f("0\r\nX: y\rz\r\n\r\n", "", 10, errField)
	f("0\r\nno colon\r\n\r\n", "", 12, errField)
	f("0\r\n: y\r\n\r\n", "", 7, errField)
	f("0\r\nX: y\r\n z\r\n\r\n", "", 12, errField)
	f("0\r\nX : y\r\n\r\n", "", 9, errField)
	f("0\r\nX: "+strings.Repeat("y", maxTrailerBytes-7)+"\r\n\r\n", "", -1, io.EOF)
	f("0\r\nX: "+strings.Repeat("y", maxTrailerBytes-6)+"\r\n\r\n", "", 3+maxTrailerBytes, errTrailerTooLarge)
	f("0\r\n"+strings.Repeat("X: y\r\n", maxTrailerBytes/6)+"\r\n", "", -1, io.EOF)
	f("0\r\n"+strings.Repeat("X: y\r\n", maxTrailerBytes/6+1)+"\r\n", "", 3+maxTrailerBytes, errTrailerTooLarge)
}

// Framing may outweigh data for a while, but not without end (CVE-2023-39326); a byte at a time may come for ever.
func TestChunkExcess(t *testing.T) {
	f := func(chunk string, n int, want error) {
		t.Helper()
		in := []byte(strings.Repeat(chunk, n))
		if got := decodePieces(1<<10, in); got.err != want {
			t.Errorf("%d of %.20q: %v, want %v", n, chunk, got.err, want)
		}
		if theirs := standardChunks(in); (theirs.err == io.ErrUnexpectedEOF) != (want == nil) {
			t.Errorf("%d of %.20q: %v; net/http: %v", n, chunk, want, theirs.err)
		}
	}
	extended := "1;" + strings.Repeat("x", 2000) + "\r\no\r\n"
	f("1\r\no\r\n", 100_000, nil)
	f("1;a=b\r\no\r\n", 100_000, nil)
	f(extended, 8, nil)
	f(extended, 9, errChunkExcess)
	f("400;"+strings.Repeat("x", 2000)+"\r\n"+strings.Repeat("o", 1024)+"\r\n", 1000, nil)
}

// standardChunks is decodePieces by net/http.
func standardChunks(in []byte) (got decoding) {
	br := bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), bytes.NewReader(in)))
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		panic(err)
	}
	data, err := io.ReadAll(res.Body)
	if err == nil {
		err = io.EOF
	}
	rest, _ := io.ReadAll(br)
	return decoding{string(data), len(in) - len(rest), err}
}

// stricter finds what may be a chunk's size that net/http takes and we do not: with blanks after it, or too large.
var stricter = regexp.MustCompile(`[0-9A-Fa-f][ \t]+\r\n|[0-9A-Fa-f]{16}`)

// FuzzChunks decodes any bytes, in any pieces, and as net/http does: what we take it takes, with the same data and
// the same end.
func FuzzChunks(f *testing.F) {
	for _, in := range []string{
		"2\r\nok\r\n0\r\n\r\n", "2\r\nok\r\n0\r\n\r\nHTTP/1.1", "2;a=b\r\nok\r\n0;c\r\nX: y\r\n\r\n", "A\r\n0123456789\r\n0\r\n\r\n", "2 \r\nok\r\n0\r\n\r\n",
		"2\nok\n0\n\n", "2\r\nokX", "0\r\n\n", "0\r\n\rX", "0\r\nX: y\n\n", "ffffffffffffffff\r\nok", "0fffffffffffffff\r\nok", "00000000000000000\r\n\r\n",
		"\r\n", ";\r\n", "0x2\r\nok", "+2\r\nok", "2;a\r;b\r\nok\r\n", "2;\nok\r\n", "0\r\nX: y\r\n z\r\n\r\n", strings.Repeat("1;"+strings.Repeat("x", 2000)+"\r\no\r\n", 9),
	} {
		f.Add([]byte(in), 2)
	}
	f.Fuzz(func(t *testing.T, in []byte, most int) {
		whole := decodePieces(max(len(in), 1), in)
		check := func(how string, got decoding) {
			t.Helper()
			if got != whole {
				t.Fatalf("%q %s: %+v, else %+v", in, how, got, whole)
			}
		}
		check("byte by byte", decodePieces(1+int(uint(most)%300), bytewise(in)...))
		for i := range min(len(in), 256) {
			check(fmt.Sprint("in two at ", i), decodePieces(1+int(uint(most)%300), in[:i], in[i:]))
		}

		theirs := standardChunks(in)
		switch {
		case whole.err == io.EOF && theirs != whole:
			t.Errorf("%q: %+v; net/http: %+v", in, whole, theirs)
		case whole.err != io.EOF && theirs.err == io.EOF && whole.err != errField && !stricter.Match(in):
			t.Errorf("%q: %v; net/http takes it", in, whole.err)
		case theirs.data != whole.data && !(stricter.Match(in) && strings.HasPrefix(theirs.data, whole.data)):
			t.Errorf("%q: %+v; net/http: %+v", in, whole, theirs)
		}
	})
}

// events is a burst of n events as engines send them, a chunk each, with the end of the body.
func events(n int) string {
	return strings.Repeat("f8\r\ndata: "+strings.Repeat("x", 240)+"\n\n\r\n", n) + "0\r\n\r\n"
}

const headOfChunks = "HTTP/1.1 200 OK\r\nDate: Mon, 01 Jan 2024 00:00:00 GMT\r\nServer: uvicorn\r\nTransfer-Encoding: chunked\r\n\r\n"

// calls counts reads of a connection on which everything is there already.
type calls struct {
	io.Reader
	n int
}

func (c *calls) Read(b []byte) (int, error) { c.n++; return c.Reader.Read(b) }

// What came at once is read at once, as far as there is room for it, and nothing is waited for then.
func TestBurstIsOneRead(t *testing.T) {
	f := func(answer string, size int, want ...int) {
		t.Helper()
		c, s := scripted(nil)
		from := &calls{Reader: strings.NewReader(answer)}
		s.in = from
		res, err := c.receive("POST", new(Stop))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var got []int
		for room := make([]byte, size); err == nil; {
			var n int
			n, err = res.Body.Read(room)
			got = append(got, n)
			if n > 0 && err == nil && from.n > 1+len(answer)/bufferSize {
				t.Errorf("%d reads of the connection for %d bytes", from.n, len(answer))
			}
		}
		if err != io.EOF || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("read %v, %v, want %v and the end", got, err, want)
		}
		if from.n != 1+len(answer)/bufferSize {
			t.Errorf("%d reads of the connection for %d bytes", from.n, len(answer))
		}
		c.pool.closeIdle()
	}
	f(headOfChunks+events(60), 16<<10, 60*248)
	f(headOfChunks+events(60), 60*248, 60*248) // the end is seen though there is no room
	f(headOfChunks+events(60), 10_000, 10_000, 4880)
	f(headOfChunks+events(3), 100, 100, 100, 100, 100, 100, 100, 100, 44)
	long := headOfChunks + events(100)
	first := decodePieces(bufferSize, []byte(long[len(headOfChunks):bufferSize])).data
	f(long, 16<<10, len(first), 24_800-len(first))
}

// Data is not held back for the end that has not come yet.
func TestDataBeforeTheEnd(t *testing.T) {
	for _, after := range []string{"", "\r", "\r\n", "\r\n0", "\r\n0\r\n", "\r\n0\r\n\r", "\r\n0\r\nX: y\r\n"} {
		c, s := scripted(nil)
		from := &calls{Reader: strings.NewReader(headOfChunks + "2\r\nok" + after)}
		s.in = from
		res, err := c.receive("POST", new(Stop))
		if err != nil {
			t.Fatal(err)
		}
		room := make([]byte, 64)
		if n, err := res.Body.Read(room); n != 2 || err != nil || from.n != 1 {
			t.Errorf("%q: %d bytes, %v, after %d reads", after, n, err, from.n)
		}
		if n, err := res.Body.Read(room); n != 0 || err != io.ErrUnexpectedEOF {
			t.Errorf("%q: then %d bytes, %v", after, n, err)
		}
	}
}

// BenchmarkChunks weighs decoding a burst of 100 chunks against the standard library's reader, both from memory.
func BenchmarkChunks(b *testing.B) {
	in, room := []byte(events(100)), make([]byte, 16<<10)
	from := bytes.NewReader(nil)
	run := func(name string, begin func() io.Reader) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				from.Reset(in)
				r, total := begin(), 0
				for {
					n, err := r.Read(room)
					if total += n; err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
				if total != 24_800 {
					b.Fatal(total, "bytes")
				}
			}
		})
	}
	c, s := scripted(nil)
	s.in = from
	body, stop := &answerBody{}, new(Stop)
	run("own", func() io.Reader {
		*body = answerBody{conn: c, stop: stop, kind: chunked, reusable: true}
		c.pool.idle = c.pool.idle[:0] // it is back in use
		return body
	})
	c.pool.closeIdle()
	br := bufio.NewReader(from)
	run("net-http", func() io.Reader {
		br.Reset(from)
		return httputil.NewChunkedReader(br)
	})
}
