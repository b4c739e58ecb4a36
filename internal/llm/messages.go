package llm

// readMessages reads an event of Anthropic's messages API.
func (s *Stream) readMessages(name, data []byte) verdict {
	sc := scanner{b: data}
	if !sc.enter('{') {
		if string(name) == "error" {
			return verdict{err: errorText(data)}
		}
		return unknownEvent(data)
	}
	kind := name
	var err *UpstreamError
	var block, delta contentBlock
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
		case "message":
			s.readMessage(&sc)
		case "usage":
			s.usage.read(&sc)
		case "content_block":
			block.read(&sc)
		case "delta":
			delta.read(&sc)
		case "error":
			err = readError(&sc)
		default:
			sc.skip()
		}
	}
	v := messagesKind(kind)
	switch string(kind) {
	case "error":
		if err == nil {
			err = readError(&scanner{b: data})
		}
		v.err = err
	case "":
		if v.err = err; err == nil {
			v.err = flatError(data)
		}
	case "content_block_start":
		v.content = block.text > 0 || !block.empty
		v.tokens, v.text = v.content, block.text
	case "content_block_delta":
		v.text = delta.text
	case "message_delta":
		v.terminal = delta.stopped
	}
	if sc.fault != faultNone && v.err == nil {
		return unknownEvent(data)
	}
	return v
}

// messagesKind judges an event by its type. Start list: message_start, ping, and content_block_start of a text or a
// thought with nothing in it yet (readMessages looks). The end of a block says nothing new.
func messagesKind(kind []byte) verdict {
	switch string(kind) {
	case "message_start", "content_block_stop", "message_delta", "ping", "error":
		return verdict{}
	case "message_stop":
		return verdict{terminal: true, done: true}
	}
	return verdict{content: true, tokens: true}
}

// readMessage reads the message object that opens the stream.
func (s *Stream) readMessage(sc *scanner) {
	if !sc.enter('{') {
		sc.skip()
		return
	}
	for {
		key, ok := sc.key()
		if !ok {
			return
		}
		switch string(key) {
		case "usage":
			s.usage.read(sc)
		case "model":
			s.setModel(sc.text())
		default:
			sc.skip()
		}
	}
}

// contentBlock is what matters of a content_block or of a delta.
type contentBlock struct {
	text    int  // bytes of output
	empty   bool // a kind of block that starts with nothing in it: text or thinking
	stopped bool // has a stop_reason
}

func (c *contentBlock) read(sc *scanner) {
	if !sc.enter('{') {
		sc.skip()
		return
	}
	for {
		key, ok := sc.key()
		if !ok {
			return
		}
		switch string(key) {
		case "type":
			t := string(sc.text())
			c.empty = t == "text" || t == "thinking"
		case "text", "thinking", "partial_json":
			if raw := sc.raw(); len(raw) > 0 && raw[0] == '"' {
				c.text += textLen(raw)
			}
		case "stop_reason":
			c.stopped = !isEmpty(sc.raw())
		default:
			sc.skip()
		}
	}
}
