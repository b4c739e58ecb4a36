package upstream

import "io"

// Await waits until a Read of a response's body that Do gave would return something, or fail, at once or soon, so that
// nobody need hold memory to read into meanwhile. It reports false if it cannot tell, and then does not wait.
func Await(body io.Reader) bool {
	b, ok := body.(*answerBody)
	if !ok {
		return false
	}
	if b.conn != nil && b.conn.in.empty() {
		_ = b.conn.fill() // what fails will fail again
	}
	return true
}

// Ready reports whether something of a response's body has come that was not read yet.
func Ready(body io.Reader) bool {
	b, ok := body.(*answerBody)
	return ok && (b.conn == nil || !b.conn.in.empty())
}

// Sent reports whether the bytes of the request's body are not read any more, though its answer is not over: their
// memory may be used for something else. A false may turn into a true. It is for the goroutine that reads the answer.
func Sent(body io.Reader) bool {
	b, ok := body.(*answerBody)
	return ok && (b.conn == nil || b.conn.sentAll())
}

// sentAll reports whether nothing is written beside any more.
func (c *conn) sentAll() bool {
	if c.writing != nil {
		select {
		case w := <-c.writing:
			c.wrote(w)
			c.writing = nil
		default:
		}
	}
	return c.writing == nil
}
