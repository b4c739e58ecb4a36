package llm

// Usage is what an engine says an answer cost, in tokens.
type Usage struct {
	Input       int // the whole prompt, cached tokens included
	CachedInput int // the part of Input that came from the engine's prefix cache; at most Input
	Output      int // generated tokens, Reasoning included
	Reasoning   int
	Reported    bool // false if the engine sent no usage; the numbers are 0 then
}

// usageCounts holds the counters as they stand on the wire. A stream may report in several events, each with some of
// them: a later event overrides an earlier one, but a zero never overrides a number, since the counters only grow and
// some engines send zeros for what an earlier event has said.
type usageCounts struct {
	input, cached, output, reasoning int
	cacheRead, cacheCreation         int // Anthropic: not part of input
	seen                             bool
}

func (u *usageCounts) set(field *int, raw []byte) {
	if n, ok := count(raw); ok {
		u.seen = true
		if n > 0 {
			*field = n
		}
	}
}

func (u *usageCounts) usage() Usage {
	if !u.seen {
		return Usage{}
	}
	input := min(u.input+u.cacheRead+u.cacheCreation, maxCount)
	return Usage{
		Input:       input,
		CachedInput: min(u.cached+u.cacheRead, input),
		Output:      u.output,
		Reasoning:   u.reasoning,
		Reported:    true,
	}
}

// read takes a usage object in any dialect's spelling; null and everything else that is no object says nothing.
func (u *usageCounts) read(s *scanner) {
	if !s.enter('{') {
		s.skip()
		return
	}
	for {
		name, ok := s.key()
		if !ok {
			return
		}
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			u.set(&u.input, s.raw())
		case "completion_tokens", "output_tokens":
			u.set(&u.output, s.raw())
		case "prompt_tokens_details", "input_tokens_details":
			u.readDetail(s, "cached_tokens", &u.cached)
		case "completion_tokens_details", "output_tokens_details":
			u.readDetail(s, "reasoning_tokens", &u.reasoning)
		case "prompt_cache_hit_tokens", "cached_tokens": // DeepSeek, Moonshot
			u.set(&u.cached, s.raw())
		case "cache_read_input_tokens":
			u.set(&u.cacheRead, s.raw())
		case "cache_creation_input_tokens":
			u.set(&u.cacheCreation, s.raw())
		default:
			s.skip()
		}
	}
}

func (u *usageCounts) readDetail(s *scanner, want string, field *int) {
	if !s.enter('{') {
		s.skip()
		return
	}
	for {
		name, ok := s.key()
		if !ok {
			return
		}
		if string(name) == want {
			u.set(field, s.raw())
		} else {
			s.skip()
		}
	}
}
