package mock

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"time"
)

// whole sends an answer that is not streamed.
func (c *conn) whole(d dialect, a *answer, f *Fault) error {
	c.event = d.whole(c.event[:0], a)
	if f == nil {
		return c.respond(http.StatusOK, jsonType, c.event)
	}
	body := c.event
	half := len(body) / 2
	switch f.Kind {
	case "stall", "die", "reset", "split":
		return c.halves(body, f)
	case "stream_error":
		return c.early(d.problem(nil, problem{status: f.Status, message: "a fault of the mock engine, inside the answer"}))
	case "truncate":
		if f.Variant == "empty" {
			half = 0
		}
		return c.early(body[:half])
	case "malformed":
		if f.Variant != "body" {
			return c.early(append(body[:half:half], "}}, not JSON"...))
		}
		c.promise(len(body) + 64)
		c.out = append(c.out, body...)
		if err := c.flush(); err != nil {
			return err
		}
		return errCut
	case "gzip":
		var zip bytes.Buffer
		w := gzip.NewWriter(&zip)
		w.Write(body)
		w.Close()
		return c.respond(http.StatusOK, jsonType, zip.Bytes(), "content-encoding: gzip")
	}
	return c.respond(http.StatusOK, jsonType, body)
}

// early answers with something that is whole as HTTP but not what the engine had to say.
func (c *conn) early(body []byte) error {
	if err := c.respond(http.StatusOK, jsonType, body); err != nil {
		return err
	}
	return errEndedEarly
}

// promise appends the head of an answer of n bytes.
func (c *conn) promise(n int) {
	c.head(http.StatusOK, jsonType)
	c.out = append(c.out, "content-length: "...)
	c.out = strconv.AppendInt(c.out, int64(n), 10)
	c.out = append(c.out, "\r\n\r\n"...)
}

// halves sends the first half of the body, and then the second or what the fault does instead.
func (c *conn) halves(body []byte, f *Fault) error {
	c.promise(len(body))
	c.out = append(c.out, body[:len(body)/2]...)
	if err := c.flush(); err != nil {
		return err
	}
	switch f.Kind {
	case "stall":
		return c.hang()
	case "die":
		return errCut
	case "reset":
		c.reset()
		return errCut
	}
	if err := c.sleep(time.Now().Add(time.Duration(f.Delay))); err != nil {
		return err
	}
	c.out = append(c.out, body[len(body)/2:]...)
	return c.flush()
}
