package route

import "time"

const (
	leastOfLine = 0.3 // of what is charged: what is late is not done, whatever the clock says
	fewOfLine   = 0.5 // of what the clock says: who makes others wait that long has a line, and what is above is chance and others' requests
	lineMemory  = 50  // prompts over which line.part and line.prompt are means
	linePrior   = 5   // prompts that count as if the clock were right
)

// line is the prompts that a deployment has before it, in seconds. It drains with time, and each first token says anew where it is:
// what was charged behind that prompt is all that is left. Guarded by Router.mu.
type line struct {
	clock   time.Time // when it will have done them, as far as is known
	charged float64   // seconds of those whose first token is awaited
	waiting int       // how many these are
	first   time.Time // when the last first token came
	prompt  mean      // seconds of one
	joined  float64   // seconds of all that ever joined

	waited, expected float64 // fading sums of what prompts waited for those before them, and of what the clock said
}

// join adds a prompt to the line. Of one that is awaited, leave must tell.
func (n *line) join(now time.Time, seconds float64, awaited bool) {
	if n.clock.Before(now) {
		n.clock = now
	}
	n.clock = n.clock.Add(time.Duration(seconds * float64(time.Second)))
	n.prompt.addOf(seconds, lineMemory)
	n.joined += seconds
	if awaited {
		n.charged += seconds
		n.waiting++
	}
}

// leave takes a prompt out that was awaited, since its first token came or since it never will.
func (n *line) leave(now time.Time, seconds float64, first bool) {
	n.charged = max(0, n.charged-seconds)
	if n.waiting--; n.waiting == 0 {
		n.charged = 0 // without what rounding left
	}
	if first {
		n.first = now
		n.clock = now.Add(time.Duration(n.charged * float64(time.Second)))
	} else {
		n.clock = n.clock.Add(-time.Duration(seconds * float64(time.Second)))
	}
}

// passed says that a prompt is done of which nobody saw the first token, since its whole answer has come: what joined behind it, when joined
// was so much, is all that can be left.
func (n *line) passed(now time.Time, joined float64) {
	if left := now.Add(time.Duration((n.joined - joined) * float64(time.Second))); n.clock.After(left) {
		n.clock = left
	}
}

// idle reports whether nothing is before a prompt that comes now.
func (n *line) idle(now time.Time) bool { return n.waiting == 0 && !n.clock.After(now) }

// ahead is how many seconds of prompts are before one that comes now.
func (n *line) ahead(now time.Time) float64 {
	return max(n.clock.Sub(now).Seconds(), leastOfLine*n.charged)
}

// learn takes what a prompt waited for those before it, of which the line said ahead.
func (n *line) learn(waited, ahead float64) {
	if ahead > 0 {
		const keep = 1 - 1.0/lineMemory
		n.waited, n.expected = keep*n.waited+max(waited, 0), keep*n.expected+ahead
	}
}

// part is how much of what is ahead a prompt waits for indeed. An engine that batches does several in the time of one, a provider has
// many engines.
func (n *line) part() float64 {
	const prior = 1.0 * linePrior / lineMemory
	if p := (n.waited + prior*n.expected) / (n.expected + prior*n.expected); p < fewOfLine {
		return p
	}
	return 1 // also where nothing is known
}
