package llm

import "bytes"

// probe reads a JSON document of any size in pieces, in bounded memory: it keeps the values of a few members near the top
// and lets the rest run by. Like the scanner, it finds structure and judges nothing.
type probe struct {
	nested bool // the document is an event: look into response and message too
	found  found

	depth   int
	objects [probeDepth + 1]bool   // whether the container at a level is an object
	members [probeDepth + 1]member // the member in which a level's current value stands

	inString bool
	slashes  int  // backslashes at the end of what was read of this string
	wantKey  bool // the next string is a member's name worth reading
	inKey    bool
	key      [maxKey]byte
	keyLen   int // maxKey+1: too long to be one of ours
	await    member

	taking      member // the member whose value is being kept
	takingDepth int
	scalar      bool // the value is a number, true, false or null
	capture     []byte
	overflow    bool
}

const (
	probeDepth = 3        // choices[].finish_reason is the deepest member looked at
	maxKey     = 128      // bytes of a name; the longest of ours, all escaped, has 108
	maxCapture = 16 << 10 // bytes kept of one value
)

// member is a name that the probe knows.
type member uint8

const (
	memberOther member = iota
	memberUsage
	memberError
	memberModel
	memberFingerprint
	memberID
	memberType
	memberObject
	memberMessage
	memberCode
	memberResponse
	memberChoices
	memberFinish
	memberDone
	memberInput
	memberOutput
	memberErrorType
	memberDetail
	memberStatus
	memberWait
	memberWaitMilli
	memberAnswer
)

// memberOf returns the member of that name at a level of the document; the level decides what is looked for.
func memberOf(name []byte, level int) member {
	switch level {
	case 1:
		switch string(name) {
		case "type":
			return memberType
		case "object":
			return memberObject
		case "message":
			return memberMessage
		case "code":
			return memberCode
		case "response":
			return memberResponse
		case "choices":
			return memberChoices
		case "done":
			return memberDone
		case "prompt_eval_count":
			return memberInput
		case "eval_count":
			return memberOutput
		case "error_type":
			return memberErrorType
		case "detail":
			return memberDetail
		case "status", "status_code", "statusCode":
			return memberStatus
		case "retry_after", "estimated_time": // the latter is Hugging Face's: until the model is loaded
			return memberWait
		case "retry_after_ms":
			return memberWaitMilli
		case "content", "output", "text", "generated_text":
			return memberAnswer
		}
	case 3:
		switch string(name) {
		case "finish_reason":
			return memberFinish
		case "error":
			return memberError
		}
		return memberOther
	}
	switch string(name) {
	case "usage":
		return memberUsage
	case "error":
		return memberError
	case "model":
		return memberModel
	case "system_fingerprint":
		return memberFingerprint
	case "id":
		return memberID
	}
	return memberOther
}

// found is what a probe keeps.
type found struct {
	usage              usageCounts
	err                *UpstreamError
	flat               UpstreamError // message, type, code and the like at the top: an error in itself if the document says so
	answer             bool          // there is something at the top that an answer has and an error has not, besides choices
	isError            bool          // "object":"error" (older vLLM)
	errKind            []byte        // "error_type", beside an error that is a bare text (TGI)
	kind               []byte        // "type"
	model, fingerprint name
	id                 name // of the answer
	finish, done       bool
	choices            choices
}

// choices says what is known of the member of that name at the top.
type choices uint8

const (
	choicesNone  choices = iota // there is no such list
	choicesEmpty                // it has no object in it, or is null
	choicesSome
)

// name is the inside of a JSON string, the first of its member. Its memory is used again.
type name struct {
	raw []byte
	set bool
}

func (n *name) take(raw []byte) {
	if !n.set {
		n.raw, n.set = append(n.raw[:0], raw...), true
	}
}

// error returns the error that the document holds, or nil. isError says that the document is known to be an error.
func (f *found) error(isError bool) *UpstreamError {
	switch {
	case f.err != nil:
		f.err.typed(f.errKind)
		f.err.RetryAfter = max(f.err.RetryAfter, f.flat.RetryAfter)
	case f.isError || isError:
		return &f.flat
	}
	return f.err
}

func (p *probe) reset(nested bool) {
	model, fingerprint, id := name{raw: p.found.model.raw[:0]}, name{raw: p.found.fingerprint.raw[:0]}, name{raw: p.found.id.raw[:0]}
	*p = probe{nested: nested, capture: p.capture[:0], found: found{model: model, fingerprint: fingerprint, id: id}}
}

// watched reports whether the members of the current container are looked at.
func (p *probe) watched() bool {
	switch p.depth {
	case 1:
		return p.objects[1]
	case 2:
		if !p.objects[1] {
			return !p.nested && p.objects[2] // a list of errors, as Gemini sends them
		}
		return p.nested && p.objects[2] && (p.members[1] == memberResponse || p.members[1] == memberMessage)
	case 3:
		return p.objects[1] && !p.objects[2] && p.objects[3] && p.members[1] == memberChoices
	}
	return false
}

// feed takes the next piece.
func (p *probe) feed(b []byte) {
	from := 0 // start of what is to be kept of this piece
	watched := p.watched()
	for i := 0; i < len(b); {
		if p.inString {
			i = p.string(b, i)
			if !p.inString && p.taking != memberOther && !p.scalar && p.depth == p.takingDepth {
				p.keep(b[from:i])
				p.take()
			}
			continue
		}
		c := b[i]
		switch class[c] {
		case classQuote:
			p.inString, p.slashes = true, 0
			if p.inKey = p.wantKey; p.inKey {
				p.keyLen = 0
			} else {
				from = p.begin(from, i, c)
			}
			p.wantKey = false
		case classOpen:
			from = p.begin(from, i, c)
			p.depth++
			p.level(c == '{')
			if p.members[1] == memberChoices && p.depth <= probeDepth {
				p.choice(c)
			}
			watched = p.watched()
			p.wantKey = watched
		case classClose:
			p.endScalar(b[from:i])
			p.depth = max(p.depth-1, 0)
			if p.taking != memberOther && p.depth == p.takingDepth {
				p.keep(b[from : i+1])
				p.take()
			}
			watched = p.watched()
			p.wantKey = false
		case classSeparator:
			if watched && c == ',' {
				p.endScalar(b[from:i])
				p.wantKey = true
				p.members[p.depth] = memberOther
			}
			if !watched {
				i = skipPlain(b, i)
			}
		case classPlain:
			if p.await != memberOther {
				from = p.begin(from, i, c)
			}
			if !watched {
				i = skipPlain(b, i)
			}
		}
		i++
	}
	if p.taking != memberOther {
		p.keep(b[from:])
	}
}

// skipPlain returns the index of the last byte of the run at i of numbers, literals, separators and spaces.
func skipPlain(b []byte, i int) int {
	for i+1 < len(b) && class[b[i+1]]-classPlain <= classSpace-classPlain {
		i++
	}
	return i
}

// endScalar ends a number, true, false or null, whose last bytes are b, if that is what is being kept.
func (p *probe) endScalar(b []byte) {
	if p.scalar && p.depth == p.takingDepth {
		p.keep(b)
		p.take()
	}
}

// level notes the kind of the container just entered.
func (p *probe) level(isObject bool) {
	if p.depth <= probeDepth {
		p.objects[p.depth] = isObject
		p.members[p.depth] = memberOther
	}
}

// choice notes what was opened in the member choices: the list, or a choice in it.
func (p *probe) choice(c byte) {
	switch {
	case p.depth == 2 && c == '[' && p.objects[1]:
		p.found.choices = choicesEmpty
	case p.depth == 3:
		p.found.choices = choicesSome
	}
}

// string reads on in a string from b[i] and returns the index after what it took.
func (p *probe) string(b []byte, i int) int {
	start := i
	for {
		n := bytes.IndexByte(b[i:], '"')
		end := i + n
		if n < 0 {
			end = len(b)
		}
		back := end
		for back > start && b[back-1] == '\\' {
			back--
		}
		slashes := end - back
		if back == start {
			slashes += p.slashes
		}
		if n < 0 {
			p.keyBytes(b[start:])
			p.slashes = slashes
			return len(b)
		}
		if i = end + 1; slashes%2 == 0 {
			p.keyBytes(b[start:end])
			p.inString = false
			p.endKey()
			return i
		}
	}
}

func (p *probe) keyBytes(b []byte) {
	if !p.inKey || p.keyLen > maxKey {
		return
	}
	if p.keyLen+len(b) > maxKey {
		p.keyLen = maxKey + 1
		return
	}
	p.keyLen += copy(p.key[p.keyLen:], b)
}

// endKey looks up the name just read.
func (p *probe) endKey() {
	if !p.inKey {
		return
	}
	p.inKey = false
	if p.keyLen > maxKey {
		return
	}
	name := p.key[:p.keyLen]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = unescape(nil, name)
	}
	m := memberOf(name, p.depth)
	if !p.objects[1] && m != memberError {
		m = memberOther
	}
	p.members[p.depth], p.await = m, m
}

// begin starts to keep the value of the awaited member, if there is one and if the value's first byte fits it. It returns
// where in the piece the part to keep starts.
func (p *probe) begin(from, i int, c byte) int {
	m := p.await
	if m == memberOther {
		return from
	}
	p.await = memberOther
	isString, isOpen := c == '"', c == '{' || c == '['
	switch m {
	case memberUsage:
		if c != '{' {
			return from
		}
	case memberResponse, memberAnswer:
		p.found.answer = p.found.answer || p.depth == 1 && c != 'n' // null
		return from
	case memberChoices:
		if c == 'n' { // null
			p.found.choices = choicesEmpty
		}
		return from
	case memberModel, memberFingerprint, memberID, memberType, memberObject, memberMessage, memberDetail, memberErrorType:
		if !isString {
			return from
		}
	case memberCode, memberFinish, memberDone, memberInput, memberOutput, memberStatus, memberWait, memberWaitMilli:
		if isOpen {
			return from
		}
	}
	p.taking, p.takingDepth, p.scalar = m, p.depth, !isString && !isOpen
	p.capture, p.overflow = p.capture[:0], false
	return i
}

func (p *probe) keep(b []byte) {
	if room := maxCapture - len(p.capture); len(b) > room {
		b, p.overflow = b[:room], true
	}
	p.capture = append(p.capture, b...)
}

// end says that the document is over: a number at its very end counts.
func (p *probe) end() {
	if p.scalar && p.taking != memberOther {
		p.take()
	}
}

// take reads the value just kept.
func (p *probe) take() {
	m, raw := p.taking, bytes.TrimSpace(p.capture)
	p.taking, p.scalar = memberOther, false
	f := &p.found
	if p.overflow {
		if m == memberError {
			f.err = errorText(raw)
		}
		return
	}
	sc := scanner{b: raw}
	switch m {
	case memberUsage:
		f.usage.read(&sc)
	case memberInput:
		f.usage.set(&f.usage.input, raw)
	case memberOutput:
		f.usage.set(&f.usage.output, raw)
	case memberError:
		if e := readError(&sc); e != nil {
			f.err = e
		}
	case memberMessage:
		f.flat.readMember(&sc, []byte("message"))
	case memberDetail:
		f.flat.readMember(&sc, []byte("detail"))
	case memberCode:
		f.flat.readMember(&sc, []byte("code"))
	case memberStatus:
		f.flat.readMember(&sc, []byte("status"))
	case memberWait:
		f.flat.readMember(&sc, []byte("retry_after"))
	case memberWaitMilli:
		f.flat.readMember(&sc, []byte("retry_after_ms"))
	case memberType:
		f.kind = append(f.kind[:0], sc.text()...)
		f.flat.Type = plain(f.kind, maxErrorWord)
	case memberErrorType:
		f.errKind = append([]byte(nil), sc.text()...)
	case memberObject:
		f.isError = string(sc.text()) == "error"
	case memberModel:
		f.model.take(sc.text())
	case memberFingerprint:
		f.fingerprint.take(sc.text())
	case memberID:
		f.id.take(sc.text())
	case memberFinish:
		f.finish = f.finish || !isEmpty(raw)
		if failedFinish(raw) && f.err == nil {
			f.err = finishError(raw)
		}
	case memberDone:
		f.done = isTrue(raw)
	}
}
