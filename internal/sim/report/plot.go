package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// plot is a figure with axes and lines.
type plot struct {
	title  string // for those who cannot see it
	x, y   axis
	curves []curve
}

// curve is one line of a plot. Points with a negative y break it.
type curve struct {
	name   string
	colour int // of the palette, from 0
	xs, ys []float64
}

// axis maps values to pixels.
type axis struct {
	label     string
	word      func(float64) string
	log       bool
	low, high float64
	unit      float64 // marks are round in multiples of it, unless the axis is logarithmic; 0 = 1
}

// Sizes of a plot in pixels; it is scaled to the page's width.
const (
	plotWidth, plotHeight   = 640, 300
	leftEdge, rightEdge     = 64, 28
	topEdge, bottomEdge     = 10, 44
	tickCount               = 5
	innerWidth, innerHeight = plotWidth - leftEdge - rightEdge, plotHeight - topEdge - bottomEdge
	colours                 = 8 // of the palette, see style.css
	xLabelBelow, tickBelow  = 38, 16
	tickLeft                = 8
)

// svg writes the plot.
func (p *plot) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, escape(p.title))
	p.axes(&b)
	for _, c := range p.curves {
		if d := p.path(&c); d != "" {
			fmt.Fprintf(&b, `<path class="line%s" d="%s"><title>%s</title></path>`, colourClass(c.colour), d, escape(c.name))
		}
	}
	b.WriteString("</svg>")
	return b.String()
}

func (p *plot) axes(b *strings.Builder) {
	for _, v := range p.y.ticks() {
		y := p.yOf(v)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			leftEdge, plotWidth-rightEdge, y, y, leftEdge-tickLeft, y+4, escape(p.y.word(v)))
	}
	for _, v := range p.x.ticks() {
		x := p.xOf(v)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x, x, topEdge, plotHeight-bottomEdge, x, plotHeight-bottomEdge+tickBelow, escape(p.x.word(v)))
	}
	fmt.Fprintf(b, `<text class="label" x="%d" y="%d" text-anchor="middle">%s</text>`, leftEdge+innerWidth/2, plotHeight-bottomEdge+xLabelBelow, escape(p.x.label))
}

func (p *plot) xOf(v float64) float64 { return leftEdge + innerWidth*p.x.place(v) }
func (p *plot) yOf(v float64) float64 { return plotHeight - bottomEdge - innerHeight*p.y.place(v) }

// path is the curve's outline, in one or more pieces.
func (p *plot) path(c *curve) string {
	var b strings.Builder
	command := "M"
	for i := range c.xs {
		if c.ys[i] < 0 {
			command = "M"
			continue
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", command, p.xOf(c.xs[i]), p.yOf(c.ys[i]))
		command = "L"
	}
	return b.String()
}

// place returns where a value is, from 0 to 1.
func (a *axis) place(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log(max(v, low)), math.Log(low), math.Log(high)
	}
	if high <= low {
		return 0
	}
	return min(max((v-low)/(high-low), 0), 1)
}

// fit sets the axis's ends so that they are round.
func (a *axis) fit(low, high float64) {
	if !a.log {
		step := roundStep((high - low) / tickCount)
		a.low, a.high = math.Floor(low/step)*step, math.Ceil(high/step)*step
		return
	}
	low = max(low, 1e-6)
	a.low, a.high = low, max(high, low*2)
	for _, decade := range steps(a.low) {
		if decade <= low {
			a.low = decade
		}
	}
	for _, decade := range steps(a.high) {
		if decade >= high {
			a.high = decade
			break
		}
	}
}

// steps are the round numbers around a positive one, in order.
func steps(x float64) []float64 {
	d := math.Pow(10, math.Floor(math.Log10(x)))
	return []float64{d, 2 * d, 5 * d, 10 * d}
}

// roundStep returns the smallest of 1, 2, 5 × a power of ten that is at least x.
func roundStep(x float64) float64 {
	if !(x > 0) {
		return 1
	}
	for _, s := range steps(x) {
		if s >= x*(1-1e-9) {
			return s
		}
	}
	return x
}

// ticks returns the values at which the axis has a mark.
func (a *axis) ticks() []float64 {
	var out []float64
	if !a.log {
		unit := cmp.Or(a.unit, 1)
		step := unit * roundStep((a.high-a.low)/unit/tickCount)
		for i := 0; ; i++ {
			v := a.low + float64(i)*step
			if v > a.high*(1+1e-9) {
				return out
			}
			out = append(out, v)
		}
	}
	every := 1 // decades with marks at 1, 2 and 5, or at 1 alone
	if a.high/a.low <= 500 {
		every = 3
	}
	for d := math.Pow(10, math.Floor(math.Log10(a.low)+1e-9)); d <= a.high*(1+1e-9); d *= 10 {
		for _, m := range []float64{1, 2, 5}[:every] {
			if v := d * m; v >= a.low*(1-1e-9) && v <= a.high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}

// colourClass names a curve's colour; those after the last have it again with dashes.
func colourClass(i int) string {
	class := fmt.Sprintf(" c%d", i%colours)
	if i >= colours {
		class += " dashed"
	}
	return class
}

// heat is a figure with a row for each deployment and a column for each stretch of time: the darker, the more.
type heat struct {
	title string
	rows  [][]float64
	most  float64 // what the darkest stands for
	width float64 // of a column, in seconds
}

const (
	heatLevels           = 16
	heatHeight, leastRow = 160, 3
	heatWord             = 64 // room for a row's name
)

// svg writes the figure. Columns next to each other that look alike are one rectangle.
func (h *heat) svg() string {
	n, columns := len(h.rows), 1
	for _, row := range h.rows {
		columns = max(columns, len(row))
	}
	each := min(24, max(leastRow, heatHeight/max(n, 1)))
	wide := float64(plotWidth-heatWord-rightEdge) / float64(columns)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, n*each+tickBelow+6, escape(h.title))
	for i, row := range h.rows {
		if each >= 10 || i == 0 || i == n-1 {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%d</text>`, heatWord-tickLeft, i*each+each/2+4, i)
		}
		for from := 0; from < len(row); {
			to, level := from, h.level(row[from])
			for to < len(row) && h.level(row[to]) == level {
				to++
			}
			if level > 0 {
				fmt.Fprintf(&b, `<rect class="heat" x="%.1f" y="%d" width="%.1f" height="%d" fill-opacity="%.2f"/>`,
					heatWord+float64(from)*wide, i*each, float64(to-from)*wide+.3, each-min(1, each/6), float64(level)/heatLevels)
			}
			from = to
		}
	}
	x := timeAxis(h.width * float64(columns))
	for _, v := range x.ticks() {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, heatWord+float64(plotWidth-heatWord-rightEdge)*x.place(v), n*each+tickBelow, escape(x.word(v)))
	}
	b.WriteString("</svg>")
	return b.String()
}

// level is how dark a value is, from 0 to heatLevels.
func (h *heat) level(v float64) int {
	if !(v > 0) || h.most <= 0 {
		return 0
	}
	return min(heatLevels, max(1, int(math.Ceil(heatLevels*v/h.most-1e-9))))
}
