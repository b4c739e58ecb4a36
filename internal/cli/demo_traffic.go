package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The traffic of the demo: arrivals at random (Poisson) that wait for nobody, most of them short, some long.
const (
	demoRate      = 28   // requests per second
	demoLongShare = 0.25 // of the requests
	demoSeed      = 1
)

// arrival is one request of the traffic.
type arrival struct {
	at     time.Duration // after the start
	prompt int           // tokens, at four bytes each
	output int           // tokens, as the request's own limit
}

// schedule draws the traffic of a time span. The same seed gives the same traffic.
func schedule(seed uint64, span time.Duration) []arrival {
	rng := rand.New(rand.NewPCG(seed, 0))
	between := func(low, high int) int { return low + rng.IntN(high-low+1) }
	var all []arrival
	for at := 0.0; ; {
		at += rng.ExpFloat64() / demoRate
		if at >= span.Seconds() {
			return all
		}
		a := arrival{at: time.Duration(at * float64(time.Second))}
		if rng.Float64() < demoLongShare {
			a.prompt, a.output = between(800, 2000), between(60, 120)
		} else {
			a.prompt, a.output = between(40, 200), between(12, 40)
		}
		all = append(all, a)
	}
}

// body is the n-th request in JSON. No two prompts are equal.
func (a arrival) body(n int) []byte {
	const filler = "and so the ships went on in an even keel over the long grey sea, "
	text := fmt.Sprintf("Question %d: ", n)
	size := 4 * a.prompt
	text += strings.Repeat(filler, max(size-len(text), 0)/len(filler)+1)
	b, err := json.Marshal(map[string]any{
		"model": demoModel, "stream": true, "max_tokens": a.output,
		"messages": []map[string]string{{"role": "user", "content": text[:size]}},
	})
	if err != nil {
		panic("BUG: cli: " + err.Error()) // nothing here that JSON cannot say
	}
	return b
}
