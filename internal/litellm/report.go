package litellm

import (
	"fmt"
	"strings"
)

// Report says what became of a configuration. No text in it holds a secret.
type Report struct {
	// Carried sums up what is in the output.
	Carried string
	// Left did not carry over. Changed is in the output and means something else than in LiteLLM. Todo is to be done before the
	// output can serve. Idle has no counterpart and needs none.
	Left, Changed, Todo, Idle []Finding
}

// Finding is about one place of the input.
type Finding struct {
	Line, Column int    // from 1; 0 if it is about no place
	Path         string // such as model_list[0].litellm_params.model
	Text         string
}

func finding(v value, text string) Finding { return Finding{v.at.Line, v.at.Column, v.path, text} }

// left reports what does not carry over.
func (c *converter) left(v value, format string, args ...any) {
	c.report.Left = append(c.report.Left, finding(v, fmt.Sprintf(format, args...)))
}

// changed reports what means something else here.
func (c *converter) changed(v value, format string, args ...any) {
	c.report.Changed = append(c.report.Changed, finding(v, fmt.Sprintf(format, args...)))
}

// todo reports what is to be done.
func (c *converter) todo(v value, format string, args ...any) {
	c.report.Todo = append(c.report.Todo, finding(v, fmt.Sprintf(format, args...)))
}

// mostLines bounds the further lines that are named where one text is about many places.
const mostLines = 12

// Text gives the report in lines; file is what the input is called.
func (r Report) Text(file string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "carried over: %s\n", r.Carried)
	for _, part := range []struct {
		title    string
		findings []Finding
	}{
		{"not carried over", r.Left},
		{"different here", r.Changed},
		{"before it serves", r.Todo},
		{"needs no counterpart", r.Idle},
	} {
		groups := grouped(part.findings)
		if len(groups) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %d\n", part.title, len(groups))
		for _, g := range groups {
			b.WriteString("  " + g.line(file) + "\n")
		}
	}
	if len(r.Left) == 0 {
		b.WriteString("not carried over: nothing\n")
	}
	return b.String()
}

// group is what one text says about several places.
type group struct {
	Finding
	more []int // lines of the others
}

// grouped joins findings that say the same about the same key of different items. They stay in the order of the first.
func grouped(all []Finding) []*group {
	type same struct{ path, text string }
	var list []*group
	index := map[same]*group{}
	for _, f := range all {
		key := same{withoutIndices(f.Path), f.Text}
		if g := index[key]; g != nil {
			g.more = append(g.more, f.Line)
			continue
		}
		g := &group{Finding: f}
		index[key] = g
		list = append(list, g)
	}
	return list
}

func (g *group) line(file string) string {
	text := g.Text
	if g.Path != "" {
		text = g.Path + ": " + text
	}
	if g.Line > 0 {
		text = fmt.Sprintf("%s:%d:%d: %s", file, g.Line, g.Column, text)
	}
	if len(g.more) == 0 {
		return text
	}
	shown := g.more[:min(len(g.more), mostLines)]
	text += " (also at line " + strings.Trim(strings.ReplaceAll(fmt.Sprint(shown), " ", ", "), "[]")
	if more := len(g.more) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// withoutIndices makes [0] and [17] the same.
func withoutIndices(path string) string {
	var b strings.Builder
	for path != "" {
		i := strings.IndexByte(path, '[')
		if i < 0 {
			break
		}
		b.WriteString(path[:i+1])
		path = strings.TrimLeft(path[i+1:], "0123456789")
	}
	b.WriteString(path)
	return b.String()
}
