package health

import (
	"math"

	"evenkeel/internal/route"
)

// told is what a page says of an engine.
type told struct {
	route.Signal
	// loaded are the models that it has in memory, of engines that load a model when it is asked for; nil = it does not say.
	loaded []string
	// ranks are what each data-parallel rank says, of engines that tell them apart, the first one first.
	ranks []route.Signal
}

// signalPage is a page on which engines of a kind tell their load, and how it is read; read returns false if it is no such page.
type signalPage struct {
	path string
	read func(body []byte, t *told) bool
}

// signalPages are the pages by kind, the best first: the next is asked where there is none before it. All of them cost the engine nothing
// but the answer.
var signalPages = map[string][]signalPage{
	"vllm":     {{"/metrics", readVLLM}},
	"sglang":   {{"/v1/loads", readSGLangLoads}, {"/metrics", readSGLangMetrics}},
	"tgi":      {{"/metrics", readTGI}},
	"llamacpp": {{"/metrics", readLlamacppMetrics}, {"/slots", readLlamacppSlots}},
	"ollama":   {{"/api/ps", readOllama}},
	"lmstudio": {{"/api/v0/models", readLMStudio}},
	"triton":   {{"/metrics", readTriton}, {"/prometheus/metrics", readTensorRT}},
}

// sum adds up what engines (data-parallel ranks) behind one server say. What none says is not told.
type sum struct {
	total float64
	n     int
}

func (s *sum) add(x float64) {
	if x >= 0 && !math.IsInf(x, 1) { // not NaN either
		s.total += x
		s.n++
	}
}

// count is the sum as a number of requests or tokens.
func (s *sum) count() int {
	if s.n == 0 {
		return route.NotTold
	}
	return int(min(s.total, math.MaxInt32))
}

// tokens is the sum as a size, 0 if nobody says one.
func (s *sum) tokens() int { return max(s.count(), 0) }

// share is the mean, of parts of a whole.
func (s *sum) share() float64 {
	if s.n == 0 {
		return route.NotTold
	}
	return min(s.total/float64(s.n), 1)
}
