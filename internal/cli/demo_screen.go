package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// style is an ANSI attribute; "" is plain.
type style string

const (
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// span is text in one style, without control characters. All of its runes are one column wide.
type span struct {
	text  string
	style style
}

// line is one line on the screen.
type line []span

func (l line) width() (n int) {
	for _, s := range l {
		n += utf8.RuneCountInString(s.text)
	}
	return n
}

func (l line) String() string {
	var b strings.Builder
	l.write(&b, 0, false)
	return b.String()
}

// write appends the line, cut to width columns (0 = not cut).
func (l line) write(b *strings.Builder, width int, colour bool) {
	left := width
	for _, s := range l {
		text := s.text
		if width > 0 {
			if left == 0 {
				return
			}
			if n := utf8.RuneCountInString(text); n > left {
				text = string([]rune(text)[:left])
			}
			left -= utf8.RuneCountInString(text)
		}
		if colour && s.style != "" && text != "" {
			b.WriteString("\x1b[" + string(s.style) + "m" + text + "\x1b[0m")
			continue
		}
		b.WriteString(text)
	}
}

// screen writes lines, and on a terminal a picture below them that is replaced in place.
type screen struct {
	out    io.Writer
	live   bool // a terminal that can move its cursor
	colour bool
	size   func() (width, height int)
	drawn  []int // widths of the picture's lines
}

// newScreen finds out what out is. NO_COLOR (no-color.org) and TERM=dumb are heeded.
func newScreen(out io.Writer) *screen {
	s := &screen{out: out, size: func() (int, int) { return 80, 24 }}
	if w, ok := out.(*watched); ok {
		out = w.Writer
	}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" || !enableANSI(f) {
		return s
	}
	s.live, s.colour = true, os.Getenv("NO_COLOR") == ""
	s.size = func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width < 1 || height < 1 {
			return 80, 24
		}
		return width, height
	}
	return s
}

// ANSI sequences. Terminals that do not know synchronised output (2026) pass over it; the others show no half picture.
const (
	beginFrame = "\x1b[?2026h\x1b[?25l" // and hide the cursor
	endFrame   = "\x1b[?2026l"
	showCursor = "\x1b[?25h"
	clearRight = "\x1b[K"
	clearBelow = "\x1b[J"
)

// draw replaces the picture: one write, so that it does not flicker.
func (s *screen) draw(picture []line) {
	width, height := s.size()
	picture = picture[:min(len(picture), max(height-1, 1))] // a picture that scrolls could not be replaced
	var b strings.Builder
	b.WriteString(beginFrame)
	b.WriteString(s.home(width))
	s.drawn = s.drawn[:0]
	for _, l := range picture {
		l.write(&b, width-1, s.colour) // the last column makes some terminals wrap
		b.WriteString(clearRight + "\r\n")
		s.drawn = append(s.drawn, min(l.width(), width-1))
	}
	b.WriteString(clearBelow + endFrame)
	io.WriteString(s.out, b.String()) // nobody is left to tell if this fails
}

// home moves to the picture's first column and line. A terminal that became narrower has wrapped its lines.
func (s *screen) home(width int) string {
	rows := 0
	for _, n := range s.drawn {
		rows += max((n+width-1)/width, 1)
	}
	return "\r" + strings.Repeat("\x1b[A", rows)
}

// print writes lines that stay, in place of the picture if there is one.
func (s *screen) print(lines ...line) {
	var b strings.Builder
	if len(s.drawn) > 0 {
		width, _ := s.size()
		b.WriteString(s.home(width) + clearBelow)
		s.drawn = s.drawn[:0]
	}
	for _, l := range lines {
		l.write(&b, 0, s.colour)
		b.WriteByte('\n')
	}
	io.WriteString(s.out, b.String()) // as above
}

// close leaves the terminal as it was.
func (s *screen) close() {
	if s.live {
		io.WriteString(s.out, showCursor) // as above
	}
}
