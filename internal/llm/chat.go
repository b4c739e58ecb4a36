package llm

import (
	"bytes"

	"evenkeel/internal/simd"
)

// readChat reads an event of chat or completions, and of every API without rules of its own. Ollama's native lines have
// other names for the same things.
//
// Start list: choices with nothing but a role, or with null or empty output and no finish_reason; no choices at all.
func (s *Stream) readChat(name, data []byte) (v verdict) {
	sc := scanner{b: data}
	known, isError := false, string(name) == "error"
	var kind []byte                                          // of an error that is a bare text (TGI)
	if !sc.enter('{') && !(sc.enter('[') && sc.enter('{')) { // Gemini puts an error into a list
		if isError {
			return verdict{err: errorText(data)}
		}
		return unknownEvent(data)
	}
	for {
		key, ok := sc.key()
		if !ok {
			break
		}
		switch string(key) {
		case "choices":
			known = true
			readChoices(&sc, &v)
		case "usage":
			known = known || s.api.Streams // elsewhere it may stand beside output that we do not know
			s.usage.read(&sc)
		case "error":
			if e := readError(&sc); e != nil {
				v.err = e
			}
		case "error_type":
			kind = sc.text()
		case "model":
			s.setModel(sc.text())
		case "system_fingerprint":
			s.setFingerprint(sc.text())
		case "object":
			isError = isError || string(sc.text()) == "error" // older vLLM: the event itself is the error object
		case "done":
			known = true
			v.done = isTrue(sc.raw())
			v.terminal = v.terminal || v.done
		case "response", "thinking":
			known = true
			v.output(&sc)
		case "message":
			known = readDelta(&sc, &v) || known
		case "prompt_eval_count":
			s.usage.set(&s.usage.input, sc.raw())
		case "eval_count":
			s.usage.set(&s.usage.output, sc.raw())
		default:
			sc.skip()
		}
	}
	if isError && v.err == nil {
		v.err = readError(&scanner{b: data})
	}
	if !known && v.err == nil && len(name) == 0 && s.api.Streams {
		v.err = flatError(data)
	}
	switch {
	case v.err != nil:
		v.err.typed(kind)
		return verdict{err: v.err}
	case !known || sc.fault != faultNone:
		return unknownEvent(data)
	}
	return v
}

// pattern is an event of chat or completions that holds one string of output. Engines write the next one the same but for
// that string, which then is all that need be looked at: it says the same about everything else. The zero value is none.
type pattern struct {
	data       []byte // the event; what is in the string does not matter
	start, end int    // of what is in the string
	said       verdict
}

// maxPattern bounds what is kept of an event, in bytes.
const maxPattern = 1 << 10

// keep makes p that event, which was read to its end, if it can be one.
func (p *pattern) keep(data []byte, said verdict) {
	p.end = 0
	last := said.outputEnd - 1
	if said.outputs != 1 || data[last] != '"' || len(data) > maxPattern {
		return
	}
	p.data = append(p.data[:0], data...)
	p.start, p.end, p.said = last+2-said.outputSize, last, said
}

// match returns what an event says if it is like p.
func (p *pattern) match(data []byte) (verdict, bool) {
	if p.end == 0 || len(data) < len(p.data)-(p.end-p.start) || string(data[:p.start]) != string(p.data[:p.start]) {
		return verdict{}, false
	}
	end := simd.StringEnd(data, p.start)
	if end <= p.start || string(data[end:]) != string(p.data[p.end:]) {
		return verdict{}, false
	}
	said := p.said
	said.text = textLen(data[p.start-1 : end+1])
	return said, true
}

// unknownEvent is the verdict on what we do not know: it goes to the client, as content.
func unknownEvent(data []byte) verdict {
	return verdict{content: true, tokens: true, text: len(data)}
}

func readChoices(sc *scanner, v *verdict) {
	if !sc.enter('[') {
		sc.skip()
		return
	}
	for sc.elem() {
		if !sc.enter('{') {
			sc.skip()
			continue
		}
		index, finished := 0, false
		for {
			key, ok := sc.key()
			if !ok {
				break
			}
			switch string(key) {
			case "index":
				index, _ = count(sc.raw())
			case "delta", "message":
				readDelta(sc, v)
			case "text":
				v.output(sc)
			case "finish_reason":
				raw := sc.raw()
				if finished = !isEmpty(raw); failedFinish(raw) && v.err == nil {
					v.err = finishError(raw)
				}
			case "error": // OpenRouter
				if e := readError(sc); e != nil {
					v.err = e
				}
			default:
				sc.skip()
			}
		}
		bit := uint64(1) << min(index, 63)
		v.begun |= bit
		if finished {
			v.ended |= bit
		}
	}
}

// readDelta reads a delta: everything in it but the role is output, if it is not empty. It returns false if the next
// value is no object.
func readDelta(sc *scanner, v *verdict) bool {
	if !sc.enter('{') {
		sc.skip()
		return false
	}
	for {
		key, ok := sc.key()
		if !ok {
			return true
		}
		switch string(key) {
		case "role":
			sc.skip()
		case "tool_calls":
			readToolCalls(sc, v)
		default:
			v.output(sc)
		}
	}
}

// readToolCalls counts the text of names and arguments alone: the rest of a call is not generated.
func readToolCalls(sc *scanner, v *verdict) {
	if !sc.enter('[') {
		v.output(sc)
		return
	}
	for sc.elem() {
		v.content, v.tokens = true, true
		if !sc.enter('{') {
			sc.skip()
			continue
		}
		for {
			key, ok := sc.key()
			if !ok {
				break
			}
			if string(key) == "function" {
				readDelta(sc, v)
			} else {
				sc.skip()
			}
		}
	}
}

// output takes the next value, which is output if it is not empty.
func (v *verdict) output(sc *scanner) {
	raw := sc.raw()
	if isEmpty(raw) {
		return
	}
	v.content, v.tokens = true, true
	v.text += textLen(raw)
	v.outputs++
	v.outputEnd, v.outputSize = sc.i, len(raw)
}

// textLen is about the size of a JSON value's text in bytes, without quotes and escapes.
func textLen(raw []byte) int {
	n := len(raw)
	if bytes.IndexByte(raw, '\\') >= 0 {
		n -= bytes.Count(raw, []byte{'\\'})
	}
	if raw[0] == '"' {
		n -= 2
	}
	return max(n, 0)
}
