package proxy

import (
	"net/http"

	"evenkeel/internal/llm"
)

// Shortage says how near the process is to its memory limit.
type Shortage uint8

// The shortages.
const (
	Enough    Shortage = iota // all requests are served
	Short                     // those with large bodies, or of whose length nothing is known, are refused
	VeryShort                 // all new ones are
)

// codeMemory is the code of a request that is turned away since the process nears its memory limit.
const codeMemory = "evenkeel_memory"

// shed is the refusal of a request for want of memory, nil if there is enough for it. What runs is not touched.
func (p *Proxy) shed(r *http.Request) *llm.Error {
	if p.Shortage == nil {
		return nil
	}
	switch s := p.Shortage(); {
	case s == Enough, s == Short && 0 <= r.ContentLength && r.ContentLength <= smallBody:
		return nil
	}
	return &llm.Error{Status: http.StatusServiceUnavailable, Code: codeMemory,
		Message: "The balancer has too little memory left for this request. Send it again in a moment."}
}
