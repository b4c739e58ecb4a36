package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// frame is what the live view shows at one moment.
type frame struct {
	strategy   string
	step       int // of two
	now, until time.Duration
	rows       []row // the last one stands for all engines
	asked      int
	complete   int
	running    int
	toldCut    int
	moved      int
	failed     int
	cuts       []count
	events     []event
}

// row is one engine.
type row struct {
	name     string
	state    string // as the balancer sees it: closed, half_open, open; "" for all engines
	reason   string
	out      time.Duration // for how long it has not served
	share    float64       // of the picks, 0 to 1
	inFlight int           // as the balancer counts
	queued   int           // waiting at the engine for a slot
	p50, p99 time.Duration // TTFT
}

// view builds the frame of a phase.
func (p *phase) view(step int) frame {
	t := p.tally
	f := frame{
		strategy: t.strategy, step: step, now: t.span, until: p.plan.half, asked: t.asked, complete: t.complete, running: t.running(),
		toldCut: t.toldCut, moved: t.moved, failed: t.failures(), cuts: counts(t.cuts), events: p.events,
	}
	all := row{name: "all", p50: t.ttft.quantile(0.50), p99: t.ttft.quantile(0.99)}
	for _, e := range p.fleet.engines {
		s, et := p.standing[e.Name()], t.engines[e.Name()]
		r := row{
			name: e.Name(), state: s.state, reason: s.reason, share: t.share(e.Name()), inFlight: s.inFlight, queued: e.Stats().Waiting,
			p50: et.ttft.quantile(0.50), p99: et.ttft.quantile(0.99),
		}
		if !s.serves() {
			r.out = time.Since(s.since)
		}
		f.rows = append(f.rows, r)
		all.share, all.inFlight, all.queued = all.share+r.share, all.inFlight+r.inFlight, all.queued+r.queued
	}
	f.rows = append(f.rows, all)
	return f
}

// shownEvents is how many of the last events the picture has: it is to fit into 24 lines.
const shownEvents = 4

// picture lays the frame out for a terminal of so many columns.
func (f *frame) picture(width int) []line {
	lines := []line{f.title(width), {}}
	lines = append(lines, f.table(width)...)
	lines = append(lines, line{})
	lines = append(lines, f.bars(width)...)
	lines = append(lines, line{}, line{
		{"requests ", faint}, {strconv.Itoa(f.asked), bold}, {"   complete ", faint}, {strconv.Itoa(f.complete), bold},
		{"   running ", faint}, {strconv.Itoa(f.running), bold}, {"   failed ", faint}, {strconv.Itoa(f.failed), ifAny(f.failed, red)},
	}, line{
		{"cut by the kill and told so ", faint}, {strconv.Itoa(f.toldCut), ifAny(f.toldCut, yellow)},
		{"   moved to another engine ", faint}, {strconv.Itoa(f.moved), ifAny(f.moved, yellow)},
	}, line{{"could not be chosen: ", faint}, {listed(f.cuts), ""}}, line{})
	for _, e := range f.events[max(len(f.events)-shownEvents, 0):] {
		lines = append(lines, e.line())
	}
	return lines
}

func ifAny(n int, s style) style {
	if n > 0 {
		return s
	}
	return bold
}

// cutWords are the words of explain for the reasons that the traffic of the demo can meet; docs/explain.md has all.
var cutWords = map[string]string{
	"already_tried": "already tried by this request",
	"open":          "out after failures",
	"trial_running": "out after failures, a trial is running",
}

func cutText(reason string) string {
	if words, ok := cutWords[reason]; ok {
		return words
	}
	return reason
}

// listed writes reasons with their numbers, in the words of explain.
func listed(all []count) string {
	if len(all) == 0 {
		return "-"
	}
	parts := make([]string, len(all))
	for i, c := range all {
		parts[i] = fmt.Sprintf("%s %d", cutText(c.what), c.n)
	}
	return strings.Join(parts, ", ")
}

func (e event) line() line {
	return line{{fmt.Sprintf("%6.1f s  ", e.at.Seconds()), faint}, {e.text, ""}}
}

func (f *frame) title(width int) line {
	const bar = 24
	title := line{{"Evenkeel demo", bold}, {fmt.Sprintf("   %d of 2: ", f.step), faint}, {f.strategy, cyan}, {"   ", ""}}
	if width >= 80 {
		full := int(bar * min(f.now.Seconds()/f.until.Seconds(), 1))
		title = append(title, span{strings.Repeat("━", full), cyan}, span{strings.Repeat("─", bar-full), faint}, span{"  ", ""})
	}
	return append(title, span{fmt.Sprintf("%.1f s", f.now.Seconds()), bold})
}

// cell is a field of the table.
type cell = span

func (f *frame) table(width int) []line {
	head := []cell{{"engine", faint}, {"state", faint}, {"share", faint}, {"in flight", faint}, {"queued", faint}, {"TTFT p50", faint}, {"    p99", faint}}
	rows := [][]cell{head}
	for i := range f.rows {
		rows = append(rows, f.rows[i].cells())
	}
	lines := columns(rows, 2, "")
	for _, least := range []int{3, 3, 2} { // a narrow terminal goes without: in flight and queued (the bars show them), share
		if lines[0].width() < width {
			break
		}
		for i, r := range rows {
			rows[i] = slices.Delete(r, least, least+1)
		}
		lines = columns(rows, 2, "")
	}
	return lines
}

// bars show what runs and what is queued at each engine.
func (f *frame) bars(width int) []line {
	const name = 8
	most := 1
	for _, r := range f.rows[:len(f.rows)-1] {
		most = max(most, r.inFlight)
	}
	scale := min(1, float64(max(width-name-1, 0))/float64(most))
	lines := make([]line, 0, len(f.rows))
	for _, r := range f.rows[:len(f.rows)-1] {
		queued := min(r.queued, r.inFlight) // the two are not counted at the same instant
		lines = append(lines, line{pad(cell{r.name, bold}, name),
			{strings.Repeat("█", int(float64(r.inFlight-queued)*scale)), green}, {strings.Repeat("▒", int(float64(queued)*scale)), yellow}})
	}
	return append(lines, line{{strings.Repeat(" ", name), ""}, {"█", green}, {" running  ", faint}, {"▒", yellow}, {" queued at the engine", faint}})
}

func (r *row) cells() []cell {
	state := cell{"serving", green}
	switch r.state {
	case "closed":
	case "":
		state.text = ""
	case "half_open":
		state = cell{"on trial", yellow}
	default:
		state = cell{fmt.Sprintf("out %.1f s: %s", r.out.Seconds(), r.reason), red}
	}
	waiting := cell{strconv.Itoa(r.queued), ""}
	if r.queued > 0 {
		waiting.style = yellow
	}
	return []cell{{r.name, bold}, pad(state, 18), {percent(r.share), ""}, {strconv.Itoa(r.inFlight), ""}, waiting, {brief(r.p50), ""}, {brief(r.p99), ""}}
}

// pad keeps a column from changing its width all the time.
func pad(c cell, width int) cell {
	c.text += strings.Repeat(" ", max(width-utf8.RuneCountInString(c.text), 0))
	return c
}

// columns aligns rows: the first left columns to the left, the others to the right.
func columns(rows [][]cell, left int, indent string) []line {
	var widths []int
	for _, r := range rows {
		for i, c := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	lines := make([]line, len(rows))
	for n, r := range rows {
		l := line{{indent, ""}}
		for i, c := range r {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if i > 0 {
				l = append(l, span{"  ", ""})
			}
			if i < left {
				l = append(l, c, span{space, ""})
			} else {
				l = append(l, span{space, ""}, c)
			}
		}
		lines[n] = l
	}
	return lines
}

// plain is the frame in one line, for what is not a terminal.
func (f *frame) plain() line {
	parts := make([]string, len(f.rows))
	for i := range f.rows {
		r := &f.rows[i]
		parts[i] = fmt.Sprintf("%s %s, %d in flight", r.name, percent(r.share), r.inFlight)
		if r.queued > 0 {
			parts[i] += fmt.Sprintf(" (%d queued)", r.queued)
		}
		parts[i] += fmt.Sprintf(", TTFT p50 %s p99 %s", brief(r.p50), brief(r.p99))
		switch r.state {
		case "closed", "":
		case "half_open":
			parts[i] += ", ON TRIAL"
		default:
			parts[i] += ", OUT " + r.reason
		}
	}
	return line{{fmt.Sprintf("%6.1f s  ", f.now.Seconds()), faint}, {strings.Join(parts, " | "), ""}}
}

// summary is what remains of a half when it is over.
func (t *tally) summary() line {
	return line{{fmt.Sprintf("%-13s", t.strategy), cyan}, {fmt.Sprintf(" %d requests, %d cut, %d failed, TTFT p50 %s, p99 %s",
		t.asked, t.toldCut, t.failures(), brief(t.ttft.quantile(0.50)), brief(t.ttft.quantile(0.99))), ""}}
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// brief writes a duration with two or three digits that count.
func brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	case d < 9995*time.Millisecond:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}
