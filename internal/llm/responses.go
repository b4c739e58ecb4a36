package llm

import (
	"bytes"
	"strings"
)

// readResponses reads an event of the responses API. Every event names its type in the data, most also in the event line.
func (s *Stream) readResponses(name, data []byte) verdict {
	sc := scanner{b: data}
	if !sc.enter('{') {
		if string(name) == "error" {
			return verdict{err: errorText(data)}
		}
		return unknownEvent(data)
	}
	kind, text := name, 0
	var err *UpstreamError
	for {
		key, ok := sc.key()
		if !ok {
			break
		}
		switch string(key) {
		case "type":
			if t := sc.text(); len(t) > 0 {
				kind = t
			}
		case "delta":
			if raw := sc.raw(); len(raw) > 0 {
				text = textLen(raw)
			}
		case "response":
			if e := s.readResponse(&sc); e != nil {
				err = e
			}
		case "error":
			err = readError(&sc)
		case "sequence_number":
			if n, ok := count(sc.raw()); ok {
				s.sequence = n + 1
			}
		default:
			sc.skip()
		}
	}
	v := responsesKind(kind)
	v.text = text
	switch string(kind) {
	case "error", "response.failed":
		if err == nil {
			err = readError(&scanner{b: data})
		}
		v.err = err
	case "":
		if v.err = err; err == nil {
			v.err = flatError(data)
		}
	}
	if sc.fault != faultNone && v.err == nil {
		return unknownEvent(data)
	}
	return v
}

// responsesKind judges an event by its type. Start list: the events that open a response, an item or a part.
func responsesKind(kind []byte) verdict {
	switch string(kind) {
	case "response.created", "response.in_progress", "response.queued", "response.output_item.added",
		"response.content_part.added", "keepalive", "ping", "error":
		return verdict{}
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		return verdict{terminal: true, done: true}
	}
	isResponse := strings.HasPrefix(string(kind), "response.")
	return verdict{content: true, tokens: !isResponse || bytes.HasSuffix(kind, []byte(".delta"))}
}

// readResponse reads the response object that opening and closing events carry.
func (s *Stream) readResponse(sc *scanner) (err *UpstreamError) {
	if !sc.enter('{') {
		sc.skip()
		return nil
	}
	for {
		key, ok := sc.key()
		if !ok {
			return err
		}
		switch string(key) {
		case "usage":
			s.usage.read(sc)
		case "error":
			err = readError(sc)
		case "model":
			s.setModel(sc.text())
		case "id":
			s.setID(sc.text())
		default:
			sc.skip()
		}
	}
}
