package cli

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// writes keeps every write on its own.
type writes []string

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, string(b))
	return len(b), nil
}

func testScreen(out io.Writer, width, height *int) *screen {
	return &screen{out: out, live: true, colour: true, size: func() (int, int) { return *width, *height }}
}

func TestScreenDrawsInPlace(t *testing.T) {
	var out writes
	width, height := 10, 4
	s := testScreen(&out, &width, &height)
	const up = "\x1b[A"
	s.draw([]line{{{"one", bold}}, {{"a line too long", ""}}})
	s.draw([]line{{{"two", ""}}, {}, {{"three", ""}}, {{"does not fit", ""}}})
	s.print(line{{"stays", red}})
	s.print(line{{"this too", ""}})
	s.close()
	want := writes{
		beginFrame + "\r\x1b[1mone\x1b[0m" + clearRight + "\r\na line to" + clearRight + "\r\n" + clearBelow + endFrame,
		beginFrame + "\r" + up + up + "two" + clearRight + "\r\n" + clearRight + "\r\nthree" + clearRight + "\r\n" + clearBelow + endFrame,
		"\r" + up + up + up + clearBelow + "\x1b[31mstays\x1b[0m\n",
		"this too\n",
		showCursor,
	}
	if !slices.Equal(out, want) {
		t.Errorf("got\n%q\nwant\n%q", out, want)
	}
}

// TestScreenThatBecameNarrower goes up over the lines that the terminal has wrapped.
func TestScreenThatBecameNarrower(t *testing.T) {
	var out writes
	width, height := 40, 10
	s := testScreen(&out, &width, &height)
	s.draw([]line{{{strings.Repeat("x", 25), ""}}, {{"short", ""}}})
	width = 10
	s.draw([]line{{{"new", ""}}})
	if up := strings.Count(out[1], "\x1b[A"); up != 4 {
		t.Errorf("it went up %d lines, want 3 for the long one and 1 for the short one", up)
	}
}

func TestScreenWithoutTerminal(t *testing.T) {
	var out writes
	s := newScreen(&out)
	s.print(line{{"red", red}, {" and bold", bold}}, line{})
	s.close()
	if s.live || !slices.Equal(out, writes{"red and bold\n\n"}) {
		t.Errorf("live %v: %q", s.live, out)
	}
}

func TestLineIsCutByColumns(t *testing.T) {
	l := line{{"ab", green}, {"", red}, {"größe", ""}}
	f := func(width int, colour bool, want string) {
		t.Helper()
		var b strings.Builder
		l.write(&b, width, colour)
		if b.String() != want {
			t.Errorf("%d columns: %q, want %q", width, &b, want)
		}
	}
	f(0, false, "abgröße")
	f(0, true, "\x1b[32mab\x1b[0mgröße")
	f(1, true, "\x1b[32ma\x1b[0m")
	f(2, true, "\x1b[32mab\x1b[0m")
	f(5, false, "abgrö")
	f(50, false, "abgröße")
	if l.width() != 7 {
		t.Errorf("%d columns", l.width())
	}
}
