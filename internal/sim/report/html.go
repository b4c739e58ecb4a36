package report

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"evenkeel/internal/sim"
)

// HTML writes the report as a page that needs nothing else: no script, no font, no picture from elsewhere.
func (r *Report) HTML(w io.Writer) error {
	rows := r.Rows()
	var b strings.Builder
	fmt.Fprintf(&b, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>
%s</style>
</head>
<body>
<main>
<h1>%s</h1>
<dl>`, escape(r.Title), style, escape(r.Title))
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "<div><dt>%s</dt><dd>%s</dd></div>", escape(f.Name), escape(f.Value))
	}
	b.WriteString("</dl>\n")
	if r.Note != "" {
		fmt.Fprintf(&b, "<p class=\"note\">%s</p>\n", escape(r.Note))
	}
	for _, t := range r.tables(rows) {
		b.WriteString(t.html())
	}
	for _, n := range r.remarks(rows) {
		fmt.Fprintf(&b, "<p>%s</p>\n", escape(n))
	}
	if len(r.Policies) > 0 && len(r.Policies[0].Runs) > 0 {
		r.figures(&b)
	}
	for _, x := range r.Sections {
		fmt.Fprintf(&b, "<h2>%s</h2>\n<pre class=\"wide\">%s</pre>\n", escape(x.Title), escape(x.Text))
	}
	b.WriteString(glossary + "</main>\n</body>\n</html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// glossary says what the words in the tables mean.
const glossary = `<h2>Words</h2>
<p>TTFT is the time from a request's arrival to its first token, with all waiting and further attempts; ITL is the mean time between
the tokens of one answer. Goodput is the share of all requests that were answered in full and within the goal. Hit share is how much
of all prompts a cache held. Imbalance is what the busiest deployment holds in the mean, in multiples of the mean over all. What came
during the burn-in counts in none of the tables. Policies saw the same requests at the same times; a difference in time or hit share is
of those requests that both answered.</p>
`

func escape(s string) string { return html.EscapeString(s) }

func (t *table) html() string {
	var b strings.Builder
	if t.title != "" {
		fmt.Fprintf(&b, "<h2>%s</h2>\n", escape(t.title))
	}
	b.WriteString("<div class=\"wide\"><table><thead><tr>")
	for i, c := range t.head {
		fmt.Fprintf(&b, "<th scope=\"col\"%s>%s</th>", t.class(i), escape(c))
	}
	b.WriteString("</tr></thead><tbody>\n")
	for _, row := range t.rows {
		b.WriteString("<tr>")
		for i, c := range row {
			tag := "td"
			if i == 0 {
				tag = `th scope="row"`
			}
			fmt.Fprintf(&b, "<%s%s>%s</%s>", tag, t.class(i), escape(c), tag[:2])
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table></div>\n")
	return b.String()
}

func (t *table) class(column int) string {
	if column < t.names {
		return ` class="name"`
	}
	return ""
}

// figures draws what the simulations of the first seed looked like, and the distribution over all seeds.
func (r *Report) figures(b *strings.Builder) {
	figure := func(title, caption string, p plot) {
		p.title = title
		fmt.Fprintf(b, "<figure><h2>%s</h2>%s%s<figcaption>%s</figcaption></figure>\n", escape(title), r.legend(), p.svg(), escape(caption))
	}
	figure("Distribution of TTFT", "Share of requests whose first token came within the time. Further left is better.", r.distribution())
	over := func(of func(*Watch) (*timeline, []float64)) []curve {
		var out []curve
		for i := range r.Policies {
			w := r.Policies[i].Runs[0].Watch
			t, ys := of(w)
			xs := make([]float64, len(ys))
			for k := range xs {
				xs[k] = (float64(k) + .5) * t.width
			}
			out = append(out, curve{r.Policies[i].Name, i, xs, ys})
		}
		return out
	}
	figure("TTFT over time", "Mean of the requests that came in each stretch of time.",
		timePlot(roundSeconds, 0, over(func(w *Watch) (*timeline, []float64) { return &w.answer, w.waited.over(&w.answer) })))
	figure("Goodput over time", "Share of requests answered within the goal ("+goalText(r.Goal)+"), by arrival.",
		timePlot(wholePercent, 1, over(func(w *Watch) (*timeline, []float64) { return &w.ended, w.good.over(&w.ended) })))
	figure("Hit share over time", "Share of prompt tokens that a cache held, by arrival.",
		timePlot(wholePercent, 1, over(func(w *Watch) (*timeline, []float64) { return &w.prompt, w.cached.over(&w.prompt) })))
	r.heats(b)
}

// goalText words what an answer must keep.
func goalText(g sim.Goal) string {
	var parts []string
	if g.TTFT > 0 {
		parts = append(parts, "TTFT ≤ "+seconds(g.TTFT.Seconds()))
	}
	if g.ITL > 0 {
		parts = append(parts, "ITL ≤ "+seconds(g.ITL.Seconds()))
	}
	if parts == nil {
		return "none: any time will do"
	}
	return strings.Join(parts, ", ")
}

// legend names the colours.
func (r *Report) legend() string {
	var b strings.Builder
	b.WriteString(`<ul class="legend">`)
	for i := range r.Policies {
		fmt.Fprintf(&b, `<li><svg viewBox="0 0 24 8" aria-hidden="true"><path class="line%s" d="M0 4L24 4"/></svg>%s</li>`, colourClass(i), escape(r.Policies[i].Name))
	}
	b.WriteString("</ul>")
	return b.String()
}

// distribution plots the share of requests by their TTFT.
func (r *Report) distribution() plot {
	p := plot{x: axis{label: "TTFT", word: roundSeconds, log: true}, y: axis{word: wholePercent, high: 1}}
	low, high := 0.0, 0.0
	for i := range r.Policies {
		c := curve{name: r.Policies[i].Name, colour: i}
		for q := .005; q < 1; q += .005 {
			x := r.Policies[i].mean(func(run *Run) float64 { return quantileOf(&run.Result.TTFT, q) })
			if x == nil {
				break // it answered nothing
			}
			c.xs, c.ys = append(c.xs, *x), append(c.ys, q)
			if *x > 0 && (low == 0 || *x < low) {
				low = *x
			}
			high = max(high, *x)
		}
		p.curves = append(p.curves, c)
	}
	p.x.fit(low, high)
	return p
}

// timePlot plots curves over the time of the simulation. The y axis reaches from 0 to high, or to the highest point.
func timePlot(word func(float64) string, high float64, curves []curve) plot {
	last, most := 0.0, high
	for _, c := range curves {
		for i := range c.xs {
			last = max(last, c.xs[i])
			if high == 0 {
				most = max(most, c.ys[i])
			}
		}
	}
	p := plot{x: timeAxis(last), y: axis{word: word}, curves: curves}
	p.y.fit(0, max(most, 1e-6))
	return p
}

// heats draws the load of each deployment over time, on one scale for all policies.
func (r *Report) heats(b *strings.Builder) {
	var all []heat
	most := 0.0
	for i := range r.Policies {
		h := r.Policies[i].Runs[0].Watch.heat()
		h.title = "Load over time under " + r.Policies[i].Name
		for _, row := range h.rows {
			for _, v := range row {
				most = max(most, v)
			}
		}
		all = append(all, h)
	}
	b.WriteString("<figure><h2>Load over time, per deployment</h2>\n")
	for i := range all {
		all[i].most = most
		fmt.Fprintf(b, "<h3>%s</h3>%s\n", escape(r.Policies[i].Name), all[i].svg())
	}
	fmt.Fprintf(b, `<figcaption>A row for each deployment (%s), by the mean number of its requests that run or wait; the darkest is %s. The same scale for all.</figcaption></figure>`+"\n",
		escape(r.names()), digits(most))
}

// names words what the rows of heats are.
func (r *Report) names() string {
	ids := r.Policies[0].Runs[0].Watch.o.Deployments
	const few = 8
	var parts []string
	for i, id := range ids {
		if i == few {
			parts = append(parts, fmt.Sprintf("and %d more in order", len(ids)-few))
			break
		}
		parts = append(parts, fmt.Sprintf("%d: %s", i, id))
	}
	return strings.Join(parts, ", ")
}

// heat returns what each deployment held over time, without title and scale.
func (w *Watch) heat() heat {
	h := heat{width: firstWidth}
	for i := range w.load {
		h.width = max(h.width, w.load[i].width)
	}
	for i := range w.load {
		t := timeline{w.load[i].width, slices.Clone(w.load[i].bins)}
		t.widen(h.width)
		row := make([]float64, len(t.bins))
		for k, area := range t.bins {
			row[k] = area / h.width
		}
		h.rows = append(h.rows, row)
	}
	return h
}

func wholePercent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// timeAxis is that of the time since the start, in the unit that suits its end.
func timeAxis(end float64) axis {
	unit, name := 1.0, "s"
	switch {
	case end >= 7200:
		unit, name = 3600, "h"
	case end >= 300:
		unit, name = 60, "min"
	}
	return axis{label: "time since the start", high: max(end, 1), unit: unit, word: func(s float64) string { return fmt.Sprintf("%.3g %s", s/unit, name) }}
}

// roundSeconds words a round duration.
func roundSeconds(s float64) string {
	switch {
	case s == 0 || s >= .9995:
		return fmt.Sprintf("%.3g s", s)
	case s >= .9995e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}
