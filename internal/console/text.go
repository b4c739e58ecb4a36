package console

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// table lays out rows in columns. Numbers are to be aligned right: columns whose index is in right.
func table(indent string, right map[int]bool, rows [][]string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		line.WriteString(indent)
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// seconds words a duration with three digits.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case a >= 99.95:
		return grouped(math.Round(s)) + " s"
	case a >= .9995 || a == 0:
		return digits(s) + " s"
	case a >= .9995e-3:
		return digits(s*1e3) + " ms"
	}
	return digits(s*1e6) + " us"
}

// digits writes a number with about three digits.
func digits(x float64) string {
	a := math.Abs(x)
	switch {
	case a >= 99.95 || a == 0:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case a >= 9.995:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// number writes a score or a count: whole numbers whole, with the thousands set apart, others with four digits.
func number(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return grouped(x)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

func grouped(x float64) string {
	s := strconv.FormatFloat(math.Abs(x), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if x < 0 {
		s = "-" + s
	}
	return s
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(float64(n)) + " " + noun + "s"
}

// modelText names a model; a request of a single endpoint may name none.
func modelText(name string) string {
	if name == "" {
		return "no model"
	}
	return clean(name)
}

// clean makes text from clients and engines fit for a terminal: what could move its cursor or change its
// colours is written out.
func clean(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		_, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
