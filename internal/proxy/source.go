package proxy

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"evenkeel/internal/llm"
	"evenkeel/internal/upstream"
)

// mostInflated bounds what is inflated of one answer only to read its usage, in bytes.
const mostInflated = 64 << 20

// mostReadable bounds what is inflated of one error to look for a credential in it, in bytes.
const mostReadable = 1 << 20

var (
	errTruncated = errors.New("the stream ended without its last event")
	errHalfJSON  = errors.New("the answer is a JSON document without its end")
	errNoAnswer  = errors.New("there is no answer in it")
)

// source reads an answer's body. Where upstream compressed it although the client cannot read that, it is
// inflated; where the client can, the bytes pass as they are, and are inflated beside that for the meter.
type source struct {
	body     io.ReadCloser
	zipped   bool // gzip
	pass     bool // the client takes the encoding
	blind    bool // the meter cannot read it
	inflater *gzip.Reader
	taken    tap
	scratch  []byte
	inflated int
}

func newSource(res *http.Response, client http.Header) source {
	s := source{body: res.Body}
	switch encoding := strings.ToLower(strings.Join(res.Header["Content-Encoding"], ", ")); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		s.zipped, s.pass = true, accepts(client, "gzip")
		s.taken.r = res.Body
	default:
		s.pass, s.blind = true, true
	}
	return s
}

// accepts reports whether a client takes an encoding.
func accepts(h http.Header, encoding string) bool {
	for _, line := range h["Accept-Encoding"] {
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(strings.ToLower(part), ";")
			name = strings.TrimSpace(name)
			if name == encoding || name == "*" {
				q := strings.ReplaceAll(params, " ", "")
				return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
			}
		}
	}
	return false
}

// raw reports whether encoded bytes go to the client, so that lines cannot be told apart in them.
func (s *source) raw() bool { return s.pass }

// decoded reports whether the client gets something else than upstream's bytes.
func (s *source) decoded() bool { return s.zipped && !s.pass }

// read returns the next bytes for the client and, the same unless encoded ones pass, for the meter. If raw,
// forward is valid until the next read; else it is in room.
func (s *source) read(room []byte) (forward, plain []byte, err error) {
	switch {
	case !s.zipped:
		n, err := s.body.Read(room)
		if s.pass {
			return room[:n], nil, err
		}
		return room[:n], room[:n], err
	case !s.pass:
		n, err := s.inflate(room)
		return room[:n], room[:n], err
	}
	if s.scratch == nil {
		s.scratch = make([]byte, readSize)
	}
	s.taken.raw = s.taken.raw[:0]
	n, err := s.inflate(s.scratch)
	if s.inflated += n; s.inflated > mostInflated || err != nil && err != io.EOF && s.taken.err == nil {
		s.zipped, s.blind, err = false, true, nil // not to be read on: the client sees for itself
	}
	return s.taken.raw, s.scratch[:n], err
}

// readable returns what bytes for the client say, from the answer's first one on, as far as it can be read.
func (s *source) readable(forward []byte) []byte {
	if !s.pass || s.taken.r == nil {
		return forward
	}
	z, err := gzip.NewReader(bytes.NewReader(forward))
	if err != nil {
		return forward
	}
	plain, _ := io.ReadAll(io.LimitReader(z, mostReadable)) // what came before an error counts
	return append(plain, forward...)                        // it may not be compressed to its end
}

func (s *source) inflate(b []byte) (int, error) {
	if s.inflater == nil {
		z, err := gzip.NewReader(&s.taken)
		if err != nil {
			return 0, err
		}
		s.inflater = z
	}
	return s.inflater.Read(b)
}

// tap keeps what is read through it.
type tap struct {
	r   io.Reader
	raw []byte
	err error
}

func (t *tap) Read(b []byte) (int, error) {
	n, err := t.r.Read(b)
	t.raw = append(t.raw, b[:n]...)
	t.err = err
	return n, err
}

// brokenBody names the class of an answer whose reading failed.
func brokenBody(err error) llm.Class {
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		return llm.Malformed
	}
	return upstream.BrokenBody(err)
}
