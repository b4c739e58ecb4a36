package upstream

import "io"

// Await waits until a Read of a response's body that Do gave would return something, or fail, at once or soon, so that
// nobody need hold memory to read into meanwhile. It reports false if it cannot tell, and then does not wait.
func Await(body io.Reader) bool {
	b, ok := body.(*answerBody)
	if !ok {
		return false
	}
	if b.conn != nil {
		_, _ = b.conn.br.Peek(1) // what fails will fail again
	}
	return true
}

// Ready reports whether something of a response's body has come that was not read yet.
func Ready(body io.Reader) bool {
	b, ok := body.(*answerBody)
	return ok && (b.conn == nil || b.conn.br.Buffered() > 0)
}

// Sent reports whether the request's body has gone out whole, or will not be read any more, though its answer is not
// over: its memory may be used for something else. A false may turn into a true.
func Sent(body io.Reader) bool {
	b, ok := body.(*answerBody)
	return ok && (b.conn == nil || b.conn.writing == nil)
}
