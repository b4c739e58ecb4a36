package config

import (
	"cmp"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"evenkeel/internal/secret"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// File is empty, and Line and Column are 0, where the place is not known. Both count from 1.
	File         string
	Line, Column int
	// Path names the setting, as in endpoints.gpu-1.limits.tokens; it may be empty.
	Path string
	// Text says what is wrong, with which value, and what to do.
	Text string

	order int   // of the file among the loaded ones
	at    *path // Path, in parts
}

// String gives the problem in one line: file:line:column: path: text.
func (p Problem) String() string {
	var parts []string
	switch {
	case p.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column))
	case p.File != "":
		parts = append(parts, p.File)
	}
	if p.Path != "" {
		parts = append(parts, p.Path)
	}
	return strings.Join(append(parts, p.Text), ": ")
}

// Problems is the error of Load and Validate: everything that is wrong, in the order of the files, one line each. No
// line ever holds a secret.
type Problems []Problem

// Error implements error.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// most bounds the problems, and the warnings, that are listed; more are counted.
const most = 200

// report collects problems and warnings.
type report struct {
	problems Problems
	warnings []Warning
	dropped  int // problems beyond most
}

func (r *report) problem(where place, at *path, format string, args ...any) {
	if len(r.problems) >= most {
		r.dropped++
		return
	}
	r.problems = append(r.problems, where.problem(at, format, args))
}

func (r *report) warning(where place, at *path, format string, args ...any) {
	if len(r.warnings) < most {
		r.warnings = append(r.warnings, Warning{where.problem(at, format, args)})
	}
}

// err returns the sorted problems as an error, nil if there are none.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	sortProblems(r.problems, func(p Problem) Problem { return p })
	if r.dropped > 0 {
		text := fmt.Sprintf("and %d more problems", r.dropped)
		if r.dropped == 1 {
			text = "and 1 more problem"
		}
		return append(r.problems, Problem{Text: text})
	}
	return r.problems
}

// sortProblems brings what holds a problem into the order of the files.
func sortProblems[T any](list []T, of func(T) Problem) {
	slices.SortStableFunc(list, func(x, y T) int {
		a, b := of(x), of(y)
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Warning is something that is accepted and that the operator should know.
type Warning struct{ Problem }

// place is where a setting was written. order counts the loaded files from 0 and is -1 for what was not in a file.
type place struct {
	file      string
	order     int
	line, col int
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.col) }

func (p place) problem(at *path, format string, args []any) Problem {
	return Problem{
		File: p.file, Line: p.line, Column: p.col, Path: at.String(), Text: fmt.Sprintf(format, args...),
		order: p.order, at: at,
	}
}

// path is the way to a setting, from the inside out. nil is the whole document. It becomes text only where it is needed.
type path struct {
	parent *path
	name   string
	item   int // of a list, where name is empty
}

// key returns the path of a key of the map at p.
func (p *path) key(name string) *path { return &path{parent: p, name: name} }

// keys is key for each name in turn.
func (p *path) keys(names ...string) *path {
	for _, name := range names {
		p = p.key(name)
	}
	return p
}

// index returns the path of an item of the list at p.
func (p *path) index(i int) *path { return &path{parent: p, item: i} }

// below returns inner, a path that starts at p, as a path of the document.
func (p *path) below(inner *path) *path {
	if inner == nil {
		return p
	}
	return &path{p.below(inner.parent), inner.name, inner.item}
}

// String is unique to the path: names that would be ambiguous with a dot are quoted.
func (p *path) String() string {
	if p == nil {
		return ""
	}
	return string(p.appendTo(nil))
}

func (p *path) appendTo(b []byte) []byte {
	if p.parent != nil {
		b = p.parent.appendTo(b)
	}
	switch {
	case p.name == "":
		return append(strconv.AppendInt(append(b, '['), int64(p.item), 10), ']')
	case !plainName(p.name):
		return append(strconv.AppendQuote(append(b, '['), p.name), ']')
	case p.parent != nil:
		b = append(b, '.')
	}
	return append(b, p.name...)
}

func plainName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
	})
}

// longestShown bounds, in runes, how much of a value a message repeats.
const longestShown = 64

// credential is what looks like one in a value that was written in the wrong place: the text after key: or token=, and
// keys by their common prefix.
var credential = regexp.MustCompile(`(?is)((?:key|token|secret|password|authorization|bearer)\w*\s*[:= ]).+|\bsk-\S+`)

// show quotes a value for a message, hides what looks like a credential, and cuts a long one.
func show(text string) string {
	text = credential.ReplaceAllString(text, "${1}"+secret.Redacted)
	if utf8.RuneCountInString(text) > longestShown {
		return strconv.Quote(string([]rune(text)[:longestShown]) + "...")
	}
	return strconv.Quote(text)
}

// DidYouMean gives the end of a message about an unknown word, as in `; did you mean "weight"?`: the nearest of the known
// words, else the list of them.
func DidYouMean(word string, known []string) string {
	if near := nearest(word, slices.Values(known)); near != "" {
		return "; did you mean " + strconv.Quote(near) + "?"
	}
	switch {
	case len(known) == 0:
		return ""
	case len(known) > 20:
		return fmt.Sprintf("; known are %s and %d more", strings.Join(known[:20], ", "), len(known)-20)
	default:
		return "; known are: " + strings.Join(known, ", ")
	}
}

// nearest returns the known word that differs from word by one typing error, else the one that begins as word does, else
// the one that differs by the fewest errors, and at most by a third of its length; of equals the first in the alphabet;
// empty if there is none.
func nearest(word string, known iter.Seq[string]) string {
	if len(word) > longestShown {
		return ""
	}
	best, bestDistance := "", max(len(word)/3, 1)
	begins, longest := "", 0
	for candidate := range known {
		if n := commonPrefix(word, candidate); n > longest || n == longest && candidate < begins {
			begins, longest = candidate, n
		}
		if abs(len(candidate)-len(word)) > bestDistance {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(candidate))
		if d < bestDistance || d == bestDistance && (best == "" || candidate < best) {
			best, bestDistance = candidate, d
		}
	}
	if (best == "" || bestDistance > 1) && longest >= 4 && (2*longest >= len(word) || longest == len(begins)) {
		return begins
	}
	return best
}

// commonPrefix is the number of bytes at the begin of a and b that are the same but for case.
func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n]|0x20 == b[n]|0x20 {
		n++
	}
	return n
}

// distance is the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b.
func distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}

func abs(n int) int { return max(n, -n) }
