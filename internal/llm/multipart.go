package llm

import (
	"bytes"
	"fmt"
	"strings"
)

// longestPartHead bounds the headers of a part, in bytes: file names are the longest that they hold.
const longestPartHead = 8 << 10

// scanForm reads a multipart/form-data body (RFC 7578, RFC 2046 §5.1) in place. It is stricter than most parsers, so that
// no engine can see a part that we did not: line ends are CR LF, nothing stands before the first or after the last
// delimiter, and the model is a plain field.
func scanForm(params string, body []byte) (Request, error) {
	none := Request{N: 1}
	boundary, err := formBoundary(params)
	if err != nil {
		return none, err
	}
	delimiter := []byte("\r\n--" + boundary)
	rest := body
	if !bytes.HasPrefix(rest, delimiter[2:]) {
		if rest = bytes.TrimPrefix(rest, []byte("\r\n")); !bytes.HasPrefix(rest, delimiter[2:]) {
			return none, formError("the body does not start with the boundary %.80q of its content-type", boundary)
		}
	}
	rest = rest[len(delimiter)-2:]
	r := Request{N: 1, form: true}
	for parts := 0; ; parts++ {
		if tail, ok := bytes.CutPrefix(rest, []byte("--")); ok {
			if len(bytes.TrimSpace(tail)) > 0 {
				return none, formError("there are bytes after the closing boundary")
			}
			return r, nil
		}
		part, ok := bytes.CutPrefix(bytes.TrimLeft(rest, " \t"), []byte("\r\n"))
		if !ok {
			return none, formError("the boundary before part %d is not followed by CR LF", parts+1)
		}
		// A bare LF before a delimiter ends the part for lenient parsers only: refuse it.
		end := bytes.Index(part, delimiter[1:])
		if end < 0 {
			return none, formError("the form ends too early, in part %d", parts+1)
		}
		if end == 0 || part[end-1] != '\r' {
			return none, formError("part %d does not end with CR LF", parts+1)
		}
		if err := r.scanPart(part[:end-1], len(body)-len(part), parts+1); err != nil {
			return none, err
		}
		rest = part[end+len(delimiter)-1:]
	}
}

// scanPart reads one part, which starts at that offset of the body: its headers, an empty line, its value.
func (r *Request) scanPart(part []byte, offset, number int) error {
	head, value, ok := bytes.Cut(part, []byte("\r\n\r\n"))
	if !ok || bytes.HasPrefix(head, []byte("\r\n")) {
		return formError("part %d has no headers, or no empty line after them", number)
	}
	if len(head) > longestPartHead {
		return formError("the headers of part %d are longer than %d bytes", number, longestPartHead)
	}
	name, file, encoded := partHeader(head)
	if name == "" {
		return formError("part %d has no content-disposition with a name", number)
	}
	switch {
	case strings.EqualFold(name, "model"):
		return r.formModel(value, offset+len(part)-len(value), name, file || encoded)
	case file:
	case name == "stream":
		r.Stream = string(bytes.TrimSpace(value)) == "true"
	case name == "prompt" || name == "input":
		r.PromptBytes += len(value)
	case name == "n":
		if n, ok := count(bytes.TrimSpace(value)); ok {
			r.N = max(r.N, n)
		}
	}
	return nil
}

func (r *Request) formModel(value []byte, start int, name string, odd bool) error {
	if r.ModelEnd != 0 {
		return &RequestError{Code: "evenkeel_duplicate_model", Param: "model",
			Message: fmt.Sprintf("the form has a second part %q: engines differ in which one they read, so send one", name)}
	}
	if name != "model" || odd {
		return &RequestError{Code: "evenkeel_invalid_model", Param: "model",
			Message: fmt.Sprintf(`the form's part %q must be a plain field named "model", neither a file nor encoded`, name)}
	}
	model, err := modelName(value, false)
	if err != nil {
		return err
	}
	r.Model, r.ModelStart, r.ModelEnd = model, start, start+len(value)
	return nil
}

// partHeader returns the name of a part, and whether it is a file or has a transfer encoding. An ambiguous name (none,
// two, or the extended form name*=) and bare line ends come back as no name.
func partHeader(head []byte) (name string, file, encoded bool) {
	for line := range strings.SplitSeq(string(head), "\r\n") {
		if strings.IndexByte(line, '\n') >= 0 || strings.IndexByte(line, '\r') >= 0 {
			return "", false, false
		}
		key, value, _ := strings.Cut(line, ":")
		switch key = strings.TrimSpace(key); {
		case strings.EqualFold(key, "content-transfer-encoding"):
			encoded = true
		case strings.EqualFold(key, "content-disposition"):
			if name != "" {
				return "", file, encoded
			}
			kind, params, _ := strings.Cut(value, ";")
			if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
				return "", file, encoded
			}
			names := 0
			ok := eachParam(params, func(k, v string) {
				switch k {
				case "name":
					name = v
					names++
				case "name*":
					names += 2
				case "filename", "filename*":
					file = true
				}
			})
			if !ok || names != 1 {
				return "", file, encoded
			}
		}
	}
	return name, file, encoded
}

// formBoundary returns the boundary of a multipart content-type's parameters.
func formBoundary(params string) (string, error) {
	boundary, found := "", 0
	ok := eachParam(params, func(k, v string) {
		if k == "boundary" {
			boundary = v
			found++
		}
	})
	switch {
	case !ok:
		return "", formError("the parameters %.80q of the content-type are malformed", params)
	case found != 1:
		return "", formError("the content-type has %d boundaries: it must have one", found)
	case boundary == "" || len(boundary) > 70 || strings.ContainsAny(boundary, "\r\n"): // RFC 2046 §5.1.1
		return "", formError("the boundary %.80q must have 1 to 70 characters", boundary)
	}
	return boundary, nil
}

// eachParam reads header parameters: name=token or name="quoted", separated by semicolons. Names come in lower case. It
// returns false if the text is malformed.
func eachParam(s string, f func(key, value string)) bool {
	for {
		s = strings.TrimLeft(s, " \t;")
		if s == "" {
			return true
		}
		key, rest, ok := strings.Cut(s, "=")
		if !ok {
			return false
		}
		key = strings.ToLower(strings.TrimSpace(key))
		var value string
		if strings.HasPrefix(rest, `"`) {
			if value, rest, ok = quoted(rest[1:]); !ok {
				return false
			}
		} else {
			end := strings.IndexAny(rest, "; \t\"")
			if end < 0 {
				end = len(rest)
			}
			value, rest = rest[:end], rest[end:]
		}
		rest = strings.TrimLeft(rest, " \t")
		if rest != "" && rest[0] != ';' {
			return false
		}
		f(key, value)
		s = rest
	}
}

// quoted reads up to the closing quote. A backslash escapes a quote or a backslash; before anything else it stands for
// itself, as browsers send file names.
func quoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

func formError(format string, args ...any) *RequestError {
	return &RequestError{Code: "evenkeel_invalid_form", Message: "multipart form: " + fmt.Sprintf(format, args...)}
}
