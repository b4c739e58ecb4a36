package engine

import "time"

// Answer is what a request brings forth.
type Answer interface {
	// Generated returns how many output tokens are out at now, as of the last step that ended by then. It changes nothing.
	Generated(now time.Duration) int
}

// Answer returns that of a request, for as long as the engine has the request; nil if it does not have it.
func (e *Engine) Answer(id uint64) Answer {
	if j := e.model.has(id); j != nil {
		return j
	}
	return nil
}

// Generated implements Answer.
func (j *job) Generated(now time.Duration) int { return j.model.generated(j, now) }

func (b *batching) generated(j *job, now time.Duration) int {
	if !j.admitted || !j.decoding() {
		return j.generated
	}
	return j.generated + b.decoders.round - j.joined + b.now.past(&b.cfg, now)
}

func (f *fifo) generated(j *job, now time.Duration) int {
	if j.every == 0 || now <= j.last { // it does not decode
		return j.generated
	}
	return min(j.OutputTokens, j.generated+int((now-j.last)/j.every))
}
