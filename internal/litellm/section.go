package litellm

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"evenkeel/internal/config"
)

// value is a value of the input with the way to it.
type value struct {
	c    *converter
	path string
	at   config.TreeEntry // with the place of its key; of an item of a list, that of the item
}

// items are those of a list; what is no list is reported.
func (v value) items() []value {
	if v.at.Value.Kind != config.TreeList {
		v.c.left(v, "must be a list, is %s", v.at.Value.Kind)
		return nil
	}
	list := make([]value, len(v.at.Value.Items))
	for i, item := range v.at.Value.Items {
		list[i] = value{v.c, fmt.Sprintf("%s[%d]", v.path, i), config.TreeEntry{Line: item.Line, Column: item.Column, Value: item}}
	}
	return list
}

// section is the map that v is; nil, and reported, if it is none.
func (v value) section() *section {
	if v.at.Value.Kind != config.TreeMap {
		v.c.left(v, "must be a map (key: value), is %s", v.at.Value.Kind)
		return nil
	}
	return v.c.section(v.path, v.at.Value)
}

// section is a map of the input of which keys are taken one by one, until rest lists those that nobody took. The nil section
// is an empty one.
type section struct {
	c       *converter
	path    string
	entries []config.TreeEntry
	index   map[string]int
	taken   map[string]bool
}

// section makes one of a map. Of a key that is written twice the last one counts, as in LiteLLM.
func (c *converter) section(path string, t config.Tree) *section {
	s := &section{c: c, path: path, index: map[string]int{}, taken: map[string]bool{}}
	for _, e := range t.Entries {
		if i, again := s.index[e.Key]; again {
			c.left(s.value(s.entries[i]), "is written again at line %d, which is what LiteLLM takes too", e.Line)
			s.entries[i] = e
			continue
		}
		s.index[e.Key] = len(s.entries)
		s.entries = append(s.entries, e)
	}
	return s
}

func (s *section) value(e config.TreeEntry) value {
	path := plainKey(e.Key)
	if s.path != "" {
		path = s.path + "." + path
	}
	return value{s.c, path, e}
}

// get takes a key; one without a value is as if it were not written.
func (s *section) get(key string) (v value, written bool) {
	if s == nil {
		return value{}, false
	}
	i, written := s.index[key]
	if !written {
		return value{}, false
	}
	s.taken[key] = true
	return s.value(s.entries[i]), s.entries[i].Value.Kind != config.TreeNull
}

// below takes the map under key; nil if there is none.
func (s *section) below(key string) *section {
	v, written := s.get(key)
	if !written {
		return nil
	}
	return v.section()
}

// text takes a key whose value is text.
func (s *section) text(key string) (string, bool) {
	v, written := s.get(key)
	if !written {
		return "", false
	}
	if v.at.Value.Kind != config.TreeText {
		s.c.left(v, "must be text, is %s", v.at.Value.Kind)
		return "", false
	}
	return v.at.Value.Text, true
}

// number takes a key whose value is a number of at least least. All others are reported.
func (s *section) number(key string, least float64) (n float64, v value, good bool) {
	v, written := s.get(key)
	if !written {
		return 0, v, false
	}
	if _, is := variable(v.at.Value.Text); is {
		s.c.left(v, "environment variables are read in url and api_key only; write the number")
		return 0, v, false
	}
	switch n, good = parseNumber(v.at.Value); {
	case !good || n < least:
		s.c.left(v, "must be a number, and at least %v", least)
		return 0, v, false
	case n > mostNumber:
		s.c.left(v, "is too large")
		return 0, v, false
	}
	return n, v, true
}

// whole is number for numbers that have no fraction here.
func (s *section) whole(key string, least float64) (n int, v value, good bool) {
	x, v, good := s.number(key, least)
	if good && x != math.Trunc(x) {
		s.c.left(v, "must be a whole number here")
		return 0, v, false
	}
	return int(x), v, good
}

// mostNumber bounds all numbers: what is beyond it is a mistake, and sums of such ones stay exact.
const mostNumber = 1e12

func parseNumber(t config.Tree) (float64, bool) {
	text := strings.ReplaceAll(t.Text, "_", "") // as in 100_000
	if t.Kind != config.TreeText || text == "" || strings.Trim(text, "0123456789.eE+-") != "" {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// on takes a switch.
func (s *section) on(key string) (v value, on bool) {
	v, written := s.get(key)
	return v, written && isTrue(v.at.Value)
}

// isTrue and isFalse know the words that YAML 1.1 has, which LiteLLM reads.
func isTrue(t config.Tree) bool  { return t.Kind == config.TreeText && trueWord.MatchString(t.Text) }
func isFalse(t config.Tree) bool { return t.Kind == config.TreeText && falseWord.MatchString(t.Text) }

var (
	trueWord  = regexp.MustCompile("^(?i:true|yes|on)$")
	falseWord = regexp.MustCompile("^(?i:false|no|off)$")
)

// idle takes keys that say nothing that a balancer could do otherwise.
func (s *section) idle(key, why string) {
	if v, written := s.get(key); written {
		s.c.report.Idle = append(s.c.report.Idle, finding(v, why))
	}
}

// rest lists the keys that nobody took, with the reason that reasons has for each.
func (s *section) rest(reasons reasons) {
	if s == nil {
		return
	}
	for _, e := range s.entries {
		if s.taken[e.Key] {
			continue
		}
		v := s.value(e)
		why, known := reasons.of(e.Key)
		switch {
		case known && isFalse(e.Value) && e.Key != "ssl_verify" && !strings.HasPrefix(e.Key, "supports_"): // where false says something
			s.c.report.Idle = append(s.c.report.Idle, finding(v, "is off"))
		case known:
			s.c.left(v, "%s", why)
		default:
			s.c.left(v, "is not known to this import")
		}
	}
}

// reasons say why keys do not carry over, and what to do instead. A key that ends in * stands for all that begin so; the first one
// that fits counts.
type reasons []struct{ keys, why string }

func (r reasons) of(key string) (why string, known bool) {
	for _, one := range r {
		for name := range strings.FieldsSeq(one.keys) {
			if prefix, all := strings.CutSuffix(name, "*"); name == key || all && strings.HasPrefix(key, prefix) {
				return one.why, true
			}
		}
	}
	return "", false
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const fromEnvironment = "os.environ/"

// variable returns the environment variable that text stands for, as in os.environ/NAME.
func variable(text string) (name string, is bool) {
	name, is = strings.CutPrefix(text, fromEnvironment)
	return name, is && envName.MatchString(name)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_.*-]{1,64}$`)

// plainKey is a key as messages show it.
func plainKey(key string) string {
	if shown := config.Show(key); !plainWord.MatchString(key) || shown != `"`+key+`"` {
		return shown
	}
	return key
}
