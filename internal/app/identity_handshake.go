package app

import (
	"log"
	"net"
	"strings"
)

// handshakes is the error log of a server with TLS: it tells refused of handshakes that failed, and next of the rest.
// net/http says nothing of them anywhere else.
type handshakes struct {
	refused func(from, reason string)
	next    *log.Logger
}

// logger returns the log that writes to h.
func (h handshakes) logger() *log.Logger { return log.New(h, "", 0) }

// Write takes one line.
func (h handshakes) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	if from, reason, failed := failedHandshake(text); failed {
		h.refused(from, reason)
	} else {
		h.next.Print(text)
	}
	return len(line), nil
}

// failedHandshake reads the line that net/http logs for a handshake that failed. A connection that ends before it has said
// why, as that of a probe which only connects, is not one.
func failedHandshake(line string) (from, reason string, failed bool) {
	rest, ok := strings.CutPrefix(line, "http: TLS handshake error from ")
	if !ok {
		return "", "", false
	}
	from, reason, ok = strings.Cut(rest, ": ")
	if !ok || reason == "EOF" || strings.HasSuffix(reason, "connection reset by peer") || strings.HasSuffix(reason, "broken pipe") {
		return "", "", false
	}
	if host, _, err := net.SplitHostPort(from); err == nil {
		from = host
	}
	return from, strings.TrimPrefix(reason, "tls: "), true
}
