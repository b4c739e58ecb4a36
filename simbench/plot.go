package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// plot is a picture of the report.
type plot struct {
	file, title string
	svg         []byte
}

// plots draws all that the rows are enough for.
func (b *bench) plots(tables []*table) []plot {
	var all []plot
	add := func(file, title string, svg []byte) {
		if svg != nil {
			all = append(all, plot{file, title, svg})
		}
	}
	add("standings.svg", "Mean and p99 TTFT of each policy, in multiples of each row's best", b.plotStandings(tables))
	add("rows.svg", "Mean TTFT of each policy in each row, in multiples of the row's best", b.plotRows(tables))
	add("load.svg", "Mean TTFT by load on the Mooncake conversation trace, 8 deployments", b.plotLoad(tables))
	return all
}

// canvas is an SVG being drawn. Its colours follow the reader's light or dark mode.
type canvas struct{ bytes.Buffer }

func newCanvas(width, height int) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="system-ui,sans-serif" font-size="11">
<style>text{fill:#1f2328}.faint{stroke:#d0d7de}.mark{fill:#1a7f37}.other{fill:#57606a}.whisker{stroke:#57606a}.back{fill:#ffffff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.faint{stroke:#30363d}.mark{fill:#3fb950}.other{fill:#8b949e}.whisker{stroke:#8b949e}.back{fill:#0d1117}}text.r{fill:#1f2328;text-anchor:middle;font-size:9px}</style>
<rect class="back" width="100%%" height="100%%"/>
`, width, height, width, height)
	return c
}

func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
}

func (c *canvas) rule(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(c, `<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", class, x1, y1, x2, y2)
}

func (c *canvas) end() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

// logScale maps values to places, equal ratios to equal distances.
type logScale struct{ from, to, low, high float64 }

func (s logScale) at(x float64) float64 {
	x = min(max(x, s.low), s.high)
	return s.from + (s.to-s.from)*math.Log(x/s.low)/math.Log(s.high/s.low)
}

// ticks are round values within the scale.
func (s logScale) ticks() []float64 {
	var t []float64
	for e := -4; e <= 5; e++ {
		for _, m := range []float64{1, 2, 5} {
			if x := m * math.Pow10(e); x >= s.low && x <= s.high {
				t = append(t, x)
			}
		}
	}
	return t
}

// plotStandings draws a line for each policy: dots are geometric means over rows, whiskers their intervals.
func (b *bench) plotStandings(tables []*table) []byte {
	const left, wide, line, top = 215, 250, 17, 40
	type panel struct {
		title string
		group int
	}
	panels := []panel{{"FIFO engines", 3}, {"engines that batch", 2}}
	first, rows := standings(tables, b.policies, groups[0].in)
	if rows == 0 {
		return nil
	}
	c := newCanvas(left+len(panels)*(wide+30), top+line*len(first)+30)
	scale := logScale{0, wide, .9, 30}
	for k, p := range panels {
		x := float64(left + k*(wide+30))
		all, n := standings(tables, b.policies, groups[p.group].in)
		c.text(x, 16, "start", fmt.Sprintf("%s, %d rows: mean (filled), p99", p.title, n))
		bottom := float64(top + line*len(first))
		for _, t := range scale.ticks() {
			c.rule("faint", x+scale.at(t), top-6, x+scale.at(t), bottom)
			c.text(x+scale.at(t), bottom+14, "middle", fmt.Sprintf("%g", t))
		}
		for i, s := range first {
			y := float64(top + line*i + line/2)
			if k == 0 {
				c.text(left-10, y+4, "end", s.policy.Name)
			}
			j := slices.IndexFunc(all, func(o standing) bool { return o.policy.Name == s.policy.Name })
			if j < 0 {
				continue
			}
			m, p99 := all[j].mean, all[j].p99
			class := "other"
			if s.policy.kind == ours {
				class = "mark"
			}
			if all[j].rows > 1 {
				c.rule("whisker", x+scale.at(m.Low), y, x+scale.at(m.High), y)
			}
			fmt.Fprintf(c, `<circle class="%s" cx="%.1f" cy="%.1f" r="4"/>`+"\n", class, x+scale.at(m.Estimate), y)
			fmt.Fprintf(c, `<circle class="whisker" fill="none" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", x+scale.at(p99.Estimate), y)
		}
	}
	return c.end()
}

// plotRows draws a cell for each row and policy, the darker the farther from the row's best.
func (b *bench) plotRows(tables []*table) []byte {
	all, rows := standings(tables, b.policies, groups[0].in)
	if rows == 0 {
		return nil
	}
	const left, cell, high, top = 300, 34, 15, 180
	var stable []*table
	for _, t := range tables {
		if t.stable {
			stable = append(stable, t)
		}
	}
	c := newCanvas(left+cell*len(all)+110, top+high*len(stable)+10)
	for j, s := range all {
		x := float64(left + cell*j + cell/2)
		fmt.Fprintf(c, `<text transform="translate(%.1f %d) rotate(-55)">%s</text>`+"\n", x, top-6, html.EscapeString(s.policy.Name))
	}
	for i, t := range stable {
		y := float64(top + high*i)
		c.text(left-6, y+11, "end", t.spec.name())
		for j, s := range all {
			e := t.entry(s.policy.Name)
			if e == nil {
				continue
			}
			r := e.meanRatio.Estimate
			x := left + cell*j
			fmt.Fprintf(c, `<path d="M%d %.0fh%dv%dh-%dz" fill="%s"/><text class="r" x="%d" y="%.0f">%s</text>`+"\n",
				x, y, cell-1, high-1, cell-1, shade(r), x+cell/2, y+11, short(r))
		}
	}
	return c.end()
}

// shade goes from green at 1 over yellow at 2 to red at 10 and more.
func shade(r float64) string {
	x := min(1, math.Log10(max(1, r)))
	return fmt.Sprintf("hsl(%.0f 65%% %.0f%%)", 130*(1-x), 78-14*x)
}

func short(r float64) string {
	if r >= 10 {
		return fmt.Sprintf("%.0f", r)
	}
	return fmt.Sprintf("%.2f", r)
}

// colours tell lines apart on light and dark.
var colours = []string{"#1a7f37", "#0969da", "#bf3989", "#bc4c00", "#8250df", "#9a6700", "#cf222e", "#1b7c83"}

// plotLoad draws, for each engine, how TTFT grows with load under the best policies, and under Evenkeel's default.
func (b *bench) plotLoad(tables []*table) []byte {
	var some []*table
	engines := []string{}
	for _, t := range tables {
		if s := &t.spec; s.Workload == "mooncake-conversation" && s.N == 8 && s.NoCache && s.Variant == "" {
			some = append(some, t)
			if !slices.Contains(engines, s.Engine) {
				engines = append(engines, s.Engine)
			}
		}
	}
	engines = slices.DeleteFunc(engines, func(e string) bool { return len(loads(some, e)) < 2 })
	if len(engines) == 0 {
		return nil
	}
	best, _ := standings(some, b.policies, func(*table) bool { return true })
	names := []string{ownDefault}
	for _, s := range best {
		if len(names) < len(colours) && !slices.Contains(names, s.policy.Name) && !strings.HasSuffix(s.policy.Name, bareSuffix) {
			names = append(names, s.policy.Name)
		}
	}
	const left, wide, high, top, gap = 40, 210, 220, 30, 50
	c := newCanvas(left+len(engines)*(wide+gap)+190, top+high+40)
	for k, e := range engines {
		c.panel(loads(some, e), names, e, float64(left+k*(wide+gap)), wide, top, high)
	}
	x := float64(left + len(engines)*(wide+gap))
	for i, n := range names {
		y := float64(top + 16*i)
		fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2"/>`+"\n", x, y, x+16, y, colours[i])
		c.text(x+20, y+4, "start", n)
	}
	return c.end()
}

// loads returns the rows of an engine by load.
func loads(tables []*table, engine string) []*table {
	var some []*table
	for _, t := range tables {
		if t.spec.Engine == engine {
			some = append(some, t)
		}
	}
	slices.SortFunc(some, func(a, b *table) int { return int(math.Copysign(1, a.spec.Rho-b.spec.Rho)) })
	return some
}

// panel draws lines of mean TTFT over load.
func (c *canvas) panel(rows []*table, names []string, title string, x, wide, top, high float64) {
	low, most := math.Inf(1), 0.0
	for _, t := range rows {
		for _, n := range names {
			if e := t.entry(n); e != nil {
				low, most = min(low, e.mean.Estimate), max(most, e.mean.Estimate)
			}
		}
	}
	y := logScale{top + high, top, low * .8, most * 1.2}
	from, to := rows[0].spec.Rho, rows[len(rows)-1].spec.Rho
	at := func(rho float64) float64 { return x + wide*(rho-from)/(to-from) }
	c.text(x, top-12, "start", title+": mean TTFT s by ρ₀")
	for _, t := range y.ticks() {
		c.rule("faint", x, y.at(t), x+wide, y.at(t))
		c.text(x-5, y.at(t)+4, "end", fmt.Sprintf("%g", t))
	}
	for _, t := range rows {
		c.text(at(t.spec.Rho), top+high+16, "middle", fmt.Sprintf("%g", t.spec.Rho))
	}
	for i, n := range names {
		var points []string
		for _, t := range rows {
			if e := t.entry(n); e != nil {
				points = append(points, fmt.Sprintf("%.1f,%.1f", at(t.spec.Rho), y.at(e.mean.Estimate)))
			}
		}
		fmt.Fprintf(c, `<polyline fill="none" stroke="%s" stroke-width="2" points="%s"/>`+"\n", colours[i], strings.Join(points, " "))
	}
}
