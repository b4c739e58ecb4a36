package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxHeaderBytes bounds the heads of one answer, interim ones included, and maxFields the lines of each.
	maxHeaderBytes = 256 << 10
	maxFields      = 512
	// mostInterim bounds 1xx answers to one request.
	mostInterim = 5
)

var (
	errHeadTooLarge  = fmt.Errorf("the head of the answer is larger than %d bytes", maxHeaderBytes)
	errTooManyFields = fmt.Errorf("the answer has more than %d headers", maxFields)
	errInterim       = fmt.Errorf("more than %d interim answers", mostInterim)
	errUpgrade       = errors.New("the answer switches protocols, which was not asked for")
	errStatusLine    = errors.New("malformed status line")
	errField         = errors.New("malformed header")
	errLength        = errors.New("malformed Content-Length")
	errLengths       = errors.New("more than one Content-Length")
	errCoding        = errors.New("a Transfer-Encoding other than chunked")
)

// head is what an answer begins with, while it is read. RFC 9112 is followed to the letter, but that a line may
// end without CR, as everybody allows, and that what nobody needs is refused: folded lines, versions other than
// 1.0 and 1.1, control characters.
type head struct {
	left   int    // how many bytes it and those after it may have
	text   []byte // its lines
	fields []field

	minor     byte // HTTP/1.minor
	status    int
	reason    [2]int // of text: from the status's digits to the end of the line
	length    int64  // announced; -1 if it is not
	lengthAt  [2]int // of text
	chunked   bool
	coded     bool // Transfer-Encoding is there, whatever it says
	close     bool // Connection says so
	keepAlive bool
	keep      time.Duration // announced by Keep-Alive: timeout; negative if it is not
	last      bool          // Keep-Alive: max=0
}

// field is where a header's name and value are in the text.
type field struct{ name, nameEnd, value, valueEnd int }

var spareHeads = sync.Pool{New: func() any { return new(head) }}

// read takes one head from the connection.
func (h *head) read(c *conn) error {
	*h = head{left: h.left, text: h.text[:0], fields: h.fields[:0], length: -1, keep: -1}
	for first := true; ; first = false {
		start := len(h.text)
		if err := h.line(c); err != nil {
			return err
		}
		end := trimEOL(h.text, start)
		switch {
		case first:
			if !h.statusLine(start, end) {
				return errStatusLine
			}
		case end == start:
			return nil
		case len(h.fields) == maxFields:
			return errTooManyFields
		default:
			if err := h.field(start, end); err != nil {
				return err
			}
		}
	}
}

// line appends the next line to the text.
func (h *head) line(c *conn) error {
	for {
		part := c.in.bytes()
		n := bytes.IndexByte(part, '\n') + 1
		if n > 0 {
			part = part[:n]
		}
		if h.left -= len(part); h.left < 0 {
			return errHeadTooLarge
		}
		h.text = append(h.text, part...)
		if c.in.skip(len(part)); n > 0 {
			return nil
		}
		if err := c.fill(); err == io.EOF {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
}

// trimEOL returns where the line that begins at start ends, without LF or CRLF.
func trimEOL(text []byte, start int) int {
	end := len(text) - 1
	if end > start && text[end-1] == '\r' {
		end--
	}
	return end
}

func (h *head) statusLine(start, end int) bool {
	s := h.text[start:end]
	const version = "HTTP/1.x "
	if len(s) < len(version)+3 || string(s[:7]) != version[:7] || s[7] != '0' && s[7] != '1' || s[8] != ' ' {
		return false
	}
	h.minor = s[7] - '0'
	h.reason = [2]int{start + len(version), end}
	for _, d := range s[9:12] {
		if d < '0' || d > '9' {
			return false
		}
		h.status = h.status*10 + int(d-'0')
	}
	return h.status >= 100 && (len(s) == 12 || s[12] == ' ') && plainText(s[12:])
}

// field takes a header line, puts its name into the usual case and notes what it says of the framing.
func (h *head) field(start, end int) error {
	line := h.text[start:end]
	n := canonicalName(line)
	if n < 0 {
		return errField
	}
	value, valueEnd := n+1, len(line)
	for value < valueEnd && blank(line[value]) {
		value++
	}
	for valueEnd > value && blank(line[valueEnd-1]) {
		valueEnd--
	}
	if !plainText(line[value:valueEnd]) {
		return errField
	}
	at := field{start, start + n, start + value, start + valueEnd}
	keep, err := h.framing(line[:n], line[value:valueEnd], at)
	if keep && err == nil {
		h.fields = append(h.fields, at)
	}
	return err
}

// framing notes what a header says of the message's end and the connection. It returns false if the header is of
// no use to who gets the answer.
func (h *head) framing(name, value []byte, at field) (bool, error) {
	switch string(name) {
	case "Content-Length":
		if h.length >= 0 {
			if string(value) != string(h.text[h.lengthAt[0]:h.lengthAt[1]]) {
				return false, errLengths
			}
			return false, nil
		}
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil {
			return false, errLength
		}
		h.length, h.lengthAt = int64(n), [2]int{at.value, at.valueEnd}
	case "Transfer-Encoding":
		again := h.coded
		if h.coded = true; h.minor == 0 {
			return false, nil // HTTP/1.0 has none: the body ends as if it were not there, and so does the connection
		}
		if again || !strings.EqualFold(string(value), "chunked") {
			return false, errCoding
		}
		h.chunked = true
		return false, nil
	case "Connection":
		for option := range strings.SplitSeq(string(value), ",") {
			option = strings.TrimSpace(option)
			h.close = h.close || strings.EqualFold(option, "close")
			h.keepAlive = h.keepAlive || strings.EqualFold(option, "keep-alive")
		}
	case "Keep-Alive":
		h.announced(string(value))
	}
	return true, nil
}

// announced reads Keep-Alive: how many seconds the server keeps an idle connection, and for how many requests
// more. What cannot be read says nothing.
func (h *head) announced(value string) {
	for param := range strings.SplitSeq(value, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(param), "=")
		n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 31)
		switch {
		case err != nil:
		case strings.EqualFold(name, "timeout"):
			h.keep = time.Duration(n) * time.Second
		case strings.EqualFold(name, "max"):
			h.last = n == 0
		}
	}
}

// answer is what a response takes, in one piece of memory.
type answer struct {
	http.Response
	body   answerBody
	values [16]string
	header http.Header
}

var spareAnswers = sync.Pool{New: func() any { return &answer{header: http.Header{}} }}

// Recycle gives the memory of a response that Do returned, with its Header, to another one. Its body must have been
// read to its end or closed. It may be a response of any other kind too, to which nothing is done.
func Recycle(res *http.Response) {
	b, ok := res.Body.(*answerBody)
	if !ok || b.conn != nil {
		return
	}
	a := b.home
	clear(a.header)
	*a = answer{header: a.header}
	spareAnswers.Put(a)
}

// asked are the requests that responses name: all that is said there is the method.
var asked = map[string]*http.Request{"POST": {Method: "POST"}, "GET": {Method: "GET"}, "HEAD": {Method: "HEAD"}}

// receive reads the head of the answer. Interim answers before it are dropped.
func (c *conn) receive(method string, stop *Stop) (*http.Response, error) {
	h := spareHeads.Get().(*head)
	err := c.final(h)
	var res *http.Response
	if err == nil {
		res = h.response(c, method, stop)
	}
	if cap(h.text) <= 16<<10 {
		spareHeads.Put(h)
	}
	return res, err
}

// final reads heads until one is not interim.
func (c *conn) final(h *head) error {
	h.left = maxHeaderBytes
	for range mostInterim + 1 {
		switch err := h.read(c); {
		case err != nil:
			return err
		case h.status == http.StatusSwitchingProtocols:
			return errUpgrade
		case h.status >= 200:
			return nil
		}
	}
	return errInterim
}

// response makes of a head what net/http calls one, but that trailers are left out.
func (h *head) response(c *conn, method string, stop *Stop) *http.Response {
	a := spareAnswers.Get().(*answer)
	text := string(h.text)
	a.Status, a.StatusCode = text[h.reason[0]:h.reason[1]], h.status
	a.Proto, a.ProtoMajor, a.ProtoMinor = "HTTP/1.1", 1, int(h.minor)
	if h.minor == 0 {
		a.Proto = "HTTP/1.0"
	}
	a.Header = h.header(a.header, text, a.values[:0])
	if a.Request = asked[method]; a.Request == nil {
		a.Request = &http.Request{Method: method}
	}
	b := &a.body
	*b = answerBody{home: a, conn: c, stop: stop}
	a.ContentLength = h.frame(b, method)
	if a.Body = b; b.kind == chunked {
		a.TransferEncoding = chunkedOnly
	}
	a.Close = h.close || h.minor == 0 && !h.keepAlive || b.kind == untilClosed
	// What has both framings, or one that its version does not have, may be read in two ways: RFC 9112 §6.3.
	doubtful := h.coded && (h.length >= 0 || h.minor == 0)
	// Who refuses a request may not have read its body, and take that for the next request.
	refused := c.bodied && h.status >= 400
	b.reusable = !a.Close && !h.last && !doubtful && !refused
	if c.keep = c.pool.idleTimeout; h.keep >= 0 { // a fifth less: it counts from when it sent the answer
		c.keep = min(h.keep-h.keep/5, longestIdle)
	}
	if b.kind == whole {
		b.ended()
	}
	return &a.Response
}

var chunkedOnly = []string{"chunked"}

// frame says how a body ends and returns the length that a response tells of it, -1 if none (RFC 9112 §6.3).
func (h *head) frame(b *answerBody, method string) int64 {
	switch {
	case method == http.MethodHead:
		if h.chunked {
			return -1
		}
		return h.length
	case h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		return 0
	case h.chunked:
		b.kind = chunked
		return -1
	case h.length > 0:
		b.kind, b.left = counted, h.length
	case h.length < 0:
		b.kind = untilClosed
	}
	return h.length
}

// header puts the fields into a map. Values are parts of text, and of spare as far as it reaches.
func (h *head) header(out http.Header, text string, spare []string) http.Header {
	values := spare
	if len(h.fields) > cap(spare) {
		values = make([]string, 0, len(h.fields))
	}
	for _, f := range h.fields {
		name, value := text[f.name:f.nameEnd], text[f.value:f.valueEnd]
		if name == "Content-Length" && h.chunked {
			continue
		}
		if before, more := out[name]; more {
			out[name] = append(before, value)
			continue
		}
		n := len(values)
		values = append(values, value)
		out[name] = values[n : n+1 : n+1]
	}
	return out
}
