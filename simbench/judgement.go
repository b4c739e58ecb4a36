package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"evenkeel/internal/sim/study"
)

// judgeStored prints the judgement of the results that there are.
func (b *bench) judgeStored(ctx context.Context, specs []spec) error {
	tables, err := b.stored(ctx, specs)
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		return fmt.Errorf("no row of %d has all its results in %s, of the code and the traces as they are: run simbench without --judge, with the same flags", len(specs), b.options.results)
	}
	var doc bytes.Buffer
	if err := b.judgement(ctx, document{&doc}, tables); err != nil {
		return err
	}
	fmt.Fprintf(&doc, "%d of %d rows are played.\n", len(tables), len(specs))
	_, err = doc.WriteTo(b.out)
	return err
}

// stored returns those of the rows whose results are all there.
func (b *bench) stored(ctx context.Context, specs []spec) (tables []*table, err error) {
	reader := &bench{options: b.options, traces: b.traces, store: b.store, policies: b.policies, versions: b.versions, out: io.Discard}
	reader.options.judge = true
	rows, err := reader.play(ctx, specs)
	for _, p := range rows {
		tables = append(tables, digest(p, b.policies))
	}
	return tables, err
}

// judgement writes what the rows say of the judged strategy, those of the hold-out beside what the others say as far as they are played.
func (b *bench) judgement(ctx context.Context, d document, tables []*table) error {
	j := judge(judged(), tables, b.policies)
	if b.options.holdout {
		o := b.options
		o.holdout, o.only = false, "*"
		specs, err := selected(o)
		if err != nil {
			return err
		}
		others, err := b.stored(ctx, specs)
		if err != nil {
			return err
		}
		j.keeps(judge(j.name, others, b.policies))
	}
	if len(j.verdicts) == 0 {
		return nil
	}
	d.line("## Judgement of `%s`\n", j.name)
	d.line("Ratios are its figures over others', so below 1 it is the better one; those of several rows are geometric means. Intervals are 95 %% over seeds, paired: both saw the same requests. Of %d stable rows and %d of other circumstances; %d more are not stable for any router. `go run ./simbench --judge` prints this from the results that there are.\n", len(j.rows), len(j.robust), j.loose)
	j.fewSeeds(d)
	d.line("| target | measured | |\n|---|---|---|")
	for _, v := range j.verdicts {
		d.line("| %s | %s | %s |", v.target, v.measured, v.holds)
	}
	d.line("")
	j.writeRivals(d)
	j.writeMisses(d)
	return nil
}

// fewSeeds says which rows have too few to go by.
func (j *judgement) fewSeeds(d document) {
	few, fewP99 := 0, 0
	all := slices.Concat(j.rows, j.robust)
	for _, t := range all {
		if t.seeds() < wantSeeds {
			few++
		}
		if t.seeds() < wantP99Seeds {
			fewP99++
		}
	}
	if fewP99 > 0 {
		d.line("**Too few seeds**: of %d rows, %d have fewer than the %d that means need, and %d fewer than the %d that p99 needs.\n", len(all), few, wantSeeds, fewP99, wantP99Seeds)
	}
}

func (j *judgement) writeRivals(d document) {
	rivals := j.rivals()
	if len(rivals) == 0 {
		return
	}
	d.line("<details><summary>Against each policy of other routers, Mooncake at ρ₀ ≥ 0.9 (%d rows)</summary>\n", len(j.busy))
	d.line("| policy | %s | %s |\n|---|---|---|", meanGauge.name, avoidable.name)
	for _, r := range rivals {
		d.line("| %s | %s | %s |", r.name, ratio(r.mean), ratio(r.avoidable))
	}
	d.line("\n</details>\n")
}

func (j *judgement) writeMisses(d document) {
	if len(j.misses) == 0 {
		return
	}
	d.line("### Misses (%d)\n", len(j.misses))
	d.line("Hits and imbalance are its own and those of the best: fewer hits tell of a cache that was not used, a higher imbalance of one that was used too much.\n")
	d.line("| row | target | ratio | best | hits | imbalance |\n|---|---|---|---|---|---|")
	for _, m := range j.misses {
		if m.best == nil {
			d.line("| %s | %s | %s | | | |", m.row, m.what, ratio(m.ratio))
			continue
		}
		hits := func(o *study.Outcome) float64 { return o.HitShare }
		imbalance := func(o *study.Outcome) float64 { return o.Imbalance }
		d.line("| %s | %s | %s | %s | %.3f, %.3f | %.2f, %.2f |", m.row, m.what, ratio(m.ratio), m.best.policy.Name, m.own.of(hits), m.best.of(hits), m.own.of(imbalance), m.best.of(imbalance))
	}
	d.line("")
}
