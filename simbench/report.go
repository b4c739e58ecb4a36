package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"evenkeel/internal/sim/study"
)

// report writes the document and its plots.
func (b *bench) report(ctx context.Context, rows []*played) error {
	var tables []*table
	for _, p := range rows {
		tables = append(tables, digest(p, b.policies))
	}
	slices.SortStableFunc(tables, func(x, y *table) int { return cmp.Compare(b.order(x), b.order(y)) })
	folder := strings.TrimSuffix(b.options.write, filepath.Ext(b.options.write))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	plots := b.plots(tables)
	for _, p := range plots {
		if err := os.WriteFile(filepath.Join(folder, p.file), p.svg, 0o644); err != nil {
			return err
		}
	}
	var doc bytes.Buffer
	d := document{&doc}
	b.head(d, tables)
	if err := b.judgement(ctx, d, tables); err != nil {
		return err
	}
	b.standings(d, tables)
	for _, p := range plots {
		d.line("![%s](%s/%s)\n", p.title, filepath.Base(folder), p.file)
	}
	b.slowRule(d, tables)
	b.overview(d, tables)
	b.published(d, tables)
	b.details(d, tables)
	return os.WriteFile(b.options.write, doc.Bytes(), 0o644)
}

// order is that of the matrix.
func (b *bench) order(t *table) int {
	return slices.IndexFunc(slices.Concat(matrix(), holdout()), func(s spec) bool { return s.name() == t.spec.name() })
}

type document struct{ *bytes.Buffer }

func (d document) line(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// head says what was run, where, and how to read it.
func (b *bench) head(d document, tables []*table) {
	m := b.machine(tables)
	how := "`make simbench`"
	if b.options.quick {
		how = "`make simbench-quick`"
	}
	d.line("# Routing quality\n")
	d.line("Written by %s on %s; do not edit. With `TRACES=` and the folder of the public traces it takes those, else excerpts.\n", how, m.date)
	if b.options.quick {
		d.line("**This is a quick run**: %d rows of %d, %d seeds in the place of %d, and rows of 1,500 to 3,000 requests for 8 deployments. It shows who is about where; differences of a few per cent it does not show, nor p99.\n",
			len(tables), len(matrix()), quickSeeds, fullSeeds)
	}
	if b.options.holdout {
		d.line("**This is the hold-out**: the second half of each trace, other seeds, and the engine `%s` in the place of `%s`. Nothing was tuned by it.\n", heldEngine, heldFor)
	}
	if b.traces.excerpts() {
		d.line("**The traces are excerpts of 300 requests**, played over and over with new prefixes: prefixes recur less than in the whole traces, and rows that need a trace of which there is no excerpt are left out. Give the folder of the whole traces by `--traces`.\n")
	}
	if len(tables) < b.rows {
		d.line("**Not all is played yet**: %d of %d rows are missing here.\n", b.rows-len(tables), b.rows)
	}
	d.line("Each row plays the same requests at the same times under every policy, in the simulator of `internal/sim`: Evenkeel's strategies run as they do in production, those of other routers are written anew from their sources (`internal/sim/peers`). Engines are the models of `internal/engine`, not engines: the order of policies carries over better than their seconds.\n")
	d.line("| | |\n|---|---|")
	d.line("| machine | %s |", m.machine)
	d.line("| rows, policies | %d of %d, %d |", len(tables), b.rows, len(b.policies))
	d.line("| simulated requests | %.1f million, %.0f thousand per minute of one core's time |", m.requests/1e6, m.perMinute/1e3)
	d.line("| commit | %s |\n", m.commit)
	d.line("%s", strings.TrimSpace(reading)+"\n")
}

const reading = `
**How to read it.** TTFT is the time from a request's arrival to its first token, ITL the mean time between its tokens; goodput is the share of requests
whose TTFT and ITL are within 2 s (10 s on Mooncake) and 100 ms; hits are cached prompt tokens per prompt token; imbalance is what the busiest
deployment has, in multiples of the mean.

ρ is the work that arrives over the work that the fleet can do: prompts and answers, with every prefix that came before in a cache. ρ₀ is the
same without any cache. Rows are named by the one that the fleet was set to; "nc" says it is ρ₀. With caches of a finite size no policy comes near to ρ.

A row is *stable* if under some other router's policy that played all seeds the last third of the requests waits at most 1.5 times as long as the middle third. Of
other rows only goodput is compared. In a table the best of a column is bold, of the policies that played all seeds; ratios are to the row's best, with 95 % intervals over seeds, paired: both saw the same requests. All
policies play the first seed, and only those that are within 1.1 times of the other routers' best mean or p99 there, and Evenkeel's default, the others: figures of fewer seeds are of other requests, and only the ratios can be compared.
Rows play the first half of their traces; the second one is kept for the hold-out (--holdout). Seeds of a trace begin at places of their own and overlap, so intervals hold for that trace; seeds of made-up traffic have the same population of system prompts, and are equally busy.

"(bare)" is an Evenkeel strategy without the router's rule that gives less to deployments whose first tokens come late. Other routers have no such rule
and always run without it.
`

// standings sums up.
func (b *bench) standings(d document, tables []*table) {
	d.line("## Standings\n")
	for _, g := range groups {
		all, rows := standings(tables, b.policies, g.in)
		if rows == 0 {
			continue
		}
		d.line("### %s (%d)\n", g.name, rows)
		d.line("Geometric means over rows of the ratio to the row's best, with 95 %% intervals over rows.\n")
		d.line("| policy | mean TTFT | p99 TTFT | as good as the best, rows | worst mean |\n|---|---|---|---|---|")
		for i, s := range all {
			d.line("| %s | %s | %s | %d of %d | %.2f |", marked(s.policy.Name, i == 0), ratio(s.mean), ratio(s.p99), s.near, s.rows, s.worst)
		}
		d.line("")
	}
}

// slowRule says what the router's rule about late first tokens brings and costs Evenkeel's strategies.
func (b *bench) slowRule(d document, tables []*table) {
	type line struct {
		name        string
		mean        study.Interval
		best, worst float64
		bestRow     string
		worstRow    string
	}
	var lines []line
	for _, name := range bare {
		l := line{name: name, best: math.Inf(1)}
		var ratios []float64
		for _, t := range tables {
			with, without := t.entry(name), t.entry(name+bareSuffix)
			if with == nil || without == nil {
				continue
			}
			r := study.Ratio(with.outcomes, without.outcomes, study.MeanTTFT).Estimate
			ratios = append(ratios, r)
			if r < l.best {
				l.best, l.bestRow = r, t.spec.name()
			}
			if r > l.worst {
				l.worst, l.worstRow = r, t.spec.name()
			}
		}
		if len(ratios) > 0 {
			l.mean = study.GeometricMean(ratios)
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return
	}
	d.line("## The rule against slow deployments\n")
	d.line("Evenkeel's router gives less to a deployment whose first tokens come three times as late as is usual for it. That is right where a machine is ill, and wrong where its queue is long: then what is taken from it makes the next one late. Mean TTFT with the rule, in multiples of that without:\n")
	d.line("| strategy | geometric mean over rows | least | most |\n|---|---|---|---|")
	for _, l := range lines {
		d.line("| %s | %s | %.2f (%s) | %.2f (%s) |", l.name, ratio(l.mean), l.best, l.bestRow, l.worst, l.worstRow)
	}
	d.line("")
}

// overview has a line for each row.
func (b *bench) overview(d document, tables []*table) {
	d.line("## Rows\n")
	d.line("Mean TTFT in seconds, and goodput of overloaded rows; the ratio is that of `%s`, Evenkeel's default, to the best, and the last one that of what is above the lower bound, the avoidable delay.\n", ownDefault)
	b.lengths(d, tables)
	d.line("| row | ρ | ρ₀ | hits of an endless cache | lasts | stable | lower bound | reference | best | | default | ratio | of avoidable delay |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, t := range tables {
		best := t.leader()
		own := t.entry(ownDefault)
		figures := [4]string{fmt.Sprintf("goodput %.3f", best.of(study.Goodput)), fmt.Sprintf("%.3f", own.of(study.Goodput)), "–", "–"}
		if t.stable {
			delay := geometric([]ratios{against(own.outcomes, best.outcomes, avoidable.of(t))})
			figures = [4]string{seconds(best.mean.Estimate), seconds(own.mean.Estimate), ratio(own.meanRatio), ratio(delay)}
		}
		d.line("| %s | %.2f | %.2f | %.2f | %.1f | %s | %s | %s | %s | %s | %s | %s | %s |", t.spec.name(), t.load.Rho, t.load.NoCache, t.load.Hits, t.lasts(), yes(t.stable),
			orDash(t.bound), orDash(t.reference()), best.policy.Name, figures[0], figures[1], figures[2], figures[3])
	}
	d.line("")
}

// reference is the best that a policy does that knows what no router can; 0 if none ran.
func (t *table) reference() float64 {
	outcomes := t.referenceOutcomes()
	if outcomes == nil {
		return 0
	}
	return study.Mean(outcomes, study.MeanTTFT).Estimate
}

// referenceOutcomes are those of the best reference, of those that played all seeds.
func (t *table) referenceOutcomes() []*study.Outcome {
	var best *entry
	for i := range t.yards {
		if e := &t.yards[i]; len(e.outcomes) == t.seeds() && (best == nil || e.mean.Estimate < best.mean.Estimate) {
			best = e
		}
	}
	if best == nil {
		return nil
	}
	return best.outcomes
}

// column of a row's table: what is best is the least, or the most.
type column struct {
	title  string
	of     study.Metric
	most   bool
	format string
	each   bool // it is about single deployments; a yardstick is one server in the place of all
}

// columns are those of stable rows; overloaded ones have no times, which would only tell how long they were played.
var (
	columns = append([]column{
		{"mean TTFT s", study.MeanTTFT, false, "%.3f", false},
		{"p50", func(o *study.Outcome) float64 { return o.TTFTP50 }, false, "%.3f", false},
		{"p99", study.P99TTFT, false, "%.2f", false},
		{"ITL p99 ms", func(o *study.Outcome) float64 { return o.ITLP99 * 1e3 }, false, "%.1f", false},
	}, overloaded...)
	overloaded = []column{
		{"goodput", study.Goodput, true, "%.3f", false},
		{"hits", func(o *study.Outcome) float64 { return o.HitShare }, true, "%.3f", false},
		{"imbalance", func(o *study.Outcome) float64 { return o.Imbalance }, false, "%.2f", true},
	}
)

// columns returns those that say something about the row.
func (t *table) columns() []column {
	if t.stable {
		return columns
	}
	return overloaded
}

// details has a table for each row.
func (b *bench) details(d document, tables []*table) {
	d.line("## Every row\n")
	for _, t := range tables {
		first := t.entries[0].outcomes[0]
		note := ""
		if !t.stable {
			note = ", overloaded"
		}
		d.line("<details><summary>%s (ρ %.2f, ρ₀ %.2f%s)</summary>\n", t.spec.name(), t.load.Rho, t.load.NoCache, note)
		for _, v := range variants {
			if v.name == t.spec.Variant {
				d.line("Here %s.\n", v.about)
			}
		}
		d.line("%d requests a seed are measured, %.1f a second over %.0f s, which is %.1f times the p99 of a request's duration under the best policy.\n",
			first.Requests, t.load.Rate, t.load.Span, t.lasts())
		d.line("No policy can have a mean TTFT below %s s.\n", seconds(t.bound))
		if t.broken != "" {
			d.line("**%s has: this row is not valid.**\n", t.broken)
		}
		t.write(d)
		d.line("</details>\n")
	}
}

func (t *table) write(d document) {
	title, rule := "| policy | seeds |", "|---|---|"
	for _, c := range t.columns() {
		title += " " + c.title + " |"
		rule += "---|"
	}
	if t.stable {
		title, rule = title+" ratio of means | of p99s |", rule+"---|---|"
	}
	d.line("%s\n%s", title, rule)
	for i := range t.entries {
		d.line("%s", t.cells(&t.entries[i], true))
	}
	for i := range t.yards {
		d.line("%s", t.cells(&t.yards[i], false))
	}
	d.line("")
}

// cells is one line of a row's table.
func (t *table) cells(e *entry, rated bool) string {
	name := e.policy.Name
	if !rated {
		name = "*" + name + "* (reference)"
	}
	line := fmt.Sprintf("| %s | %d |", name, len(e.outcomes))
	for _, c := range t.columns() {
		sign := 1.0
		if c.most {
			sign = -1
		}
		if c.each && !rated {
			line += " – |"
			continue
		}
		best := t.best(func(e *entry) float64 { return sign * e.of(c.of) })
		line += " " + marked(fmt.Sprintf(c.format, e.of(c.of)), rated && len(e.outcomes) == t.seeds() && e.of(c.of) == best.of(c.of)) + " |"
	}
	switch {
	case !t.stable:
		return line
	case !rated:
		return line + " | |"
	}
	return line + " " + ratio(e.meanRatio) + " | " + ratio(e.p99Ratio) + " |"
}

func marked(s string, bold bool) string {
	if bold {
		return "**" + s + "**"
	}
	return s
}

func ratio(i study.Interval) string {
	if math.IsNaN(i.Estimate) {
		return "–"
	}
	if math.IsInf(i.Low, 0) || math.IsInf(i.High, 0) {
		return fmt.Sprintf("%.2f", i.Estimate)
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", i.Estimate, i.Low, i.High)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

func orDash(s float64) string {
	if s == 0 {
		return "–"
	}
	return seconds(s)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
