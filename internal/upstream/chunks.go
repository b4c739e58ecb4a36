package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// maxChunkLine bounds a chunk's size with its extensions, line end included, as net/http does.
	maxChunkLine = 4 << 10
	// maxChunk bounds what a chunk may announce. net/http's bookkeeping overflows from 1<<62 on.
	maxChunk = 1<<60 - 1
	// maxTrailerBytes bounds what follows the last chunk.
	maxTrailerBytes = 4 << 10
	// maxChunkExcess bounds by how much framing may outweigh data, as net/http does (CVE-2023-39326): a chunk may have
	// freeExcess bytes of it and twice as many as it has data; what is more adds up.
	maxChunkExcess = 16 << 10
	freeExcess     = 16
)

var (
	errChunkSize       = errors.New("malformed chunk size")
	errChunkTooLarge   = fmt.Errorf("a chunk of more than %d bytes, or a size of more than 16 digits", int64(maxChunk))
	errChunkLine       = fmt.Errorf("a chunk's size and extensions are longer than %d bytes, or end with a bare CR or LF", maxChunkLine)
	errChunkEnd        = errors.New("a chunk does not end with CRLF")
	errChunkExcess     = errors.New("chunks that are more framing than data")
	errTrailerTooLarge = fmt.Errorf("the trailer of the answer is larger than %d bytes", maxTrailerBytes)
)

// chunks decodes a chunked body (RFC 9112 §7.1) in whatever pieces it comes. The zero value is at its beginning. It
// takes nothing that net/http refuses, and beyond that refuses blanks after a size, and sizes over maxChunk.
type chunks struct {
	at     place
	digits int    // of a size: how many came
	line   int    // of a size's line: how many bytes came, without its end
	left   int64  // the size as far as it came; then bytes of data to come
	excess int64  // framing beyond what data allows
	field  []byte // of the trailer: its unfinished line
	after  int    // of the trailer: how many bytes came
}

// place is where in a chunked body the next byte is.
type place uint8

const (
	inSize place = iota
	inExtension
	afterSize // and CR
	inData
	afterData
	afterDataCR
	lineStart // of the trailer
	inField
	afterFields // and CR
	theEnd
)

// decode moves data from in to out, until in is used up or out has no room for more. It returns how many bytes of
// both it used, with io.EOF once the body is at its end. After any other error it must not be called again.
func (d *chunks) decode(out, in []byte) (wrote, read int, err error) {
	for read < len(in) && d.at != theEnd {
		if d.at == inData {
			n := copy(out[wrote:], in[read:min(int64(len(in)), int64(read)+d.left)])
			if n == 0 {
				return wrote, read, nil
			}
			wrote, read = wrote+n, read+n
			d.took(n)
			continue
		}
		if err := d.frame(in[read]); err != nil {
			return wrote, read, err
		}
		read++
	}
	if d.at == theEnd {
		err = io.EOF
	}
	return wrote, read, err
}

// took notes that n bytes of data were read.
func (d *chunks) took(n int) {
	if d.left -= int64(n); d.left == 0 {
		d.at = afterData
	}
}

// frame takes a byte that is not data.
func (d *chunks) frame(c byte) error {
	switch d.at {
	case inSize:
		return d.size(c)
	case inExtension:
		if c == '\r' {
			d.at = afterSize
			return nil
		}
		if d.line++; c == '\n' || d.line > maxChunkLine-len("\r\n") {
			return errChunkLine
		}
	case afterSize:
		if c != '\n' {
			return errChunkLine
		}
		return d.begin()
	case afterData:
		if c != '\r' {
			return errChunkEnd
		}
		d.at = afterDataCR
	case afterDataCR:
		if c != '\n' {
			return errChunkEnd
		}
		d.at = inSize
	default:
		return d.trailer(c)
	}
	return nil
}

// size takes a byte of a chunk's size, or the one that ends it.
func (d *chunks) size(c byte) error {
	digit := hexDigits[c]
	switch {
	case digit >= 0 && d.digits == 16:
		return errChunkTooLarge
	case digit >= 0:
		d.left = d.left<<4 | int64(digit)
		if d.digits++; d.left > maxChunk || d.left < 0 {
			return errChunkTooLarge
		}
		d.line++
		return nil
	case d.digits > 0 && c == '\r':
		d.at = afterSize
		return nil
	case d.digits > 0 && c == ';':
		d.line++
		d.at = inExtension
		return nil
	}
	return errChunkSize
}

// begin comes to the data of a chunk, or to the trailer.
func (d *chunks) begin() error {
	framing := int64(d.line + len("\r\n"))
	d.digits, d.line = 0, 0
	if d.left == 0 {
		d.at = lineStart
		return nil
	}
	d.excess = max(d.excess+framing-freeExcess-2*d.left, 0)
	if d.excess > maxChunkExcess {
		return errChunkExcess
	}
	d.at = inData
	return nil
}

// trailer takes a byte of what follows the last chunk. It is dropped: nobody asked for it.
func (d *chunks) trailer(c byte) error {
	if d.after++; d.after > maxTrailerBytes {
		return errTrailerTooLarge
	}
	switch {
	case d.at == afterFields && c == '\n':
		d.at, d.field = theEnd, nil
	case d.at == afterFields:
		return errField
	case d.at == lineStart && c == '\r':
		d.at = afterFields
	case c != '\n':
		d.at, d.field = inField, append(d.field, c)
	default:
		line, ends := bytes.CutSuffix(d.field, []byte("\r"))
		n := canonicalName(line)
		if !ends || n < 0 || !plainText(line[n:]) {
			return errField
		}
		d.at, d.field = lineStart, d.field[:0]
	}
	return nil
}

// hexDigits is what a hexadecimal digit counts, and negative for anything else.
var hexDigits = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i, c := range "0123456789abcdef" {
		t[c] = int8(i)
	}
	for i, c := range "ABCDEF" {
		t[c] = int8(10 + i)
	}
	return t
}()
