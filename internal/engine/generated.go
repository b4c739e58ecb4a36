package engine

import "time"

// Generated returns how many output tokens of a request are out at now, as of the last step that ended by then; 0 if the engine
// does not have the request. It changes nothing.
func (e *Engine) Generated(now time.Duration, id uint64) int {
	j := e.model.has(id)
	if j == nil {
		return 0
	}
	switch m := e.model.(type) {
	case *batching:
		if j.admitted && j.decoding() {
			return j.generated + m.decoders.round - j.joined + m.now.past(&m.cfg, now)
		}
	case *fifo:
		for i := range m.decoding {
			if s := &m.decoding[i]; s.job == j && now > s.last {
				return min(j.OutputTokens, j.generated+int((now-s.last)/s.every))
			}
		}
	}
	return j.generated
}
