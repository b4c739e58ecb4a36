package upstream

// tokens marks what names of headers may hold (RFC 9110 §5.6.2).
var tokens = func() (t [256]bool) {
	for _, c := range "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		t[c] = true
	}
	return t
}()

// canonicalName puts a header line's name into the usual case, in place, and returns its length. It is negative
// if the line does not begin with a name and a colon.
func canonicalName(line []byte) int {
	upper := true
	for i, c := range line {
		switch {
		case c == ':' && i > 0:
			return i
		case !tokens[c]:
			return -1
		case upper && 'a' <= c && c <= 'z':
			line[i] = c - ('a' - 'A')
		case !upper && 'A' <= c && c <= 'Z':
			line[i] = c + ('a' - 'A')
		}
		upper = c == '-'
	}
	return -1
}

// plainText reports whether s may be a header's value or a reason (RFC 9110 §5.5): it holds no control characters.
func plainText[T string | []byte](s T) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
