package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// about says where and when a run took place.
type about struct {
	date, cpu, kernel, nginx, commit, load string
	cores                                  int
}

func (a about) machine() string {
	built := ""
	if flags := os.Getenv("GOFLAGS"); flags != "" {
		built = ", evenkeel built with " + flags
	}
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, %s, commit %s%s", a.cpu, a.cores, a.kernel, runtime.Version(), a.nginx, a.commit, built)
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// describe fails where the figures could not be taken: without Linux's /proc.
func describe(ctx context.Context) (about, error) {
	a := about{date: time.Now().UTC().Format("2006-01-02 15:04 UTC"), cpu: runtime.GOARCH, cores: runtime.NumCPU(), commit: "unknown", nginx: "nginx"}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return a, fmt.Errorf("CPU time is read from Linux's /proc: %w", err)
	}
	a.load = strings.Join(strings.Fields(string(load))[:3], " ")
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return a, err
	}
	a.kernel = strings.TrimSpace(string(kernel))
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return a, err
	}
	if m := modelName.FindSubmatch(cpu); m != nil { // arm64 has none
		a.cpu = string(m[1])
	}
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output(); err == nil { // an export has no repository
		a.commit = strings.TrimSpace(string(out))
	}
	if out, err := exec.CommandContext(ctx, "nginx", "-v").CombinedOutput(); err == nil { // newBed says what is wrong
		a.nginx = strings.TrimPrefix(strings.TrimSpace(string(out)), "nginx version: ")
	}
	return a, nil
}

// render writes the report.
func render(a about, o options, r results) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What the balancer costs\n\nMeasured %s on %s. Load average at the start: %s.\n\n", a.date, a.machine(), a.load)
	fmt.Fprintf(&b, "One run of `make bench`: %d rounds, direct, nginx and evenkeel interleaved on the same mock engines over loopback, three for each model. "+
		"Windows of %v, after a warm-up. Medians of the rounds; ratios are paired within each round. "+
		"CPU time is the process's own, user and system, from /proc: all of nginx's processes, all of evenkeel's threads. "+
		"The load, the engines and the proxy share the machine, so rates say little and CPU time much.\n\n", o.rounds, o.window())
	b.WriteString("nginx runs one worker per core, unbuffered towards the client, request bodies in memory, with connections kept on both sides and an access log. " +
		"evenkeel runs with its defaults: it routes over three deployments, meters tokens, counts metrics, keeps the ring for `explain` and logs a line for each request. " +
		"Both write their logs to a file in batches. Every answer is compared byte for byte with what the engine gives.\n\n")
	for _, c := range o.cells {
		fmt.Fprintf(&b, "- **%s**: %s\n", c.name, c.about)
	}
	b.WriteString("\nAn event is one server-sent event: nearly always one token, sent by the engine in its own write.\n")
	renderCPU(&b, o, r)
	renderRates(&b, o, r)
	renderLatency(&b, o, r)
	renderMemory(&b, o, r)
	renderProofs(&b, o, r)
	renderTally(&b, o, r)
	return b.String()
}

// verdict says how a figure stands to what was set for it.
func verdict(figure, bound, stretch float64) string {
	switch {
	case bound == 0:
		return "–"
	case figure <= stretch:
		return "stretch met"
	case figure <= bound:
		return "met"
	}
	return "missed"
}

// limit prints a bound; – if there is none.
func limit(x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf("%g", x)
}

// loads are the cells with a load, not those that hold streams.
func loads(all []cell) []cell {
	return slices.DeleteFunc(slices.Clone(all), func(c cell) bool { return c.held > 0 })
}

func renderCPU(b *strings.Builder, o options, r results) {
	if len(loads(o.cells)) == 0 {
		return
	}
	b.WriteString("\n## CPU time\n\n| cell | per | nginx µs | evenkeel µs | evenkeel ÷ nginx | min–max | bound | stretch | verdict | RSS MB nginx | RSS MB evenkeel |\n" +
		"| --- | --- | --: | --: | --: | --: | --: | --: | --- | --: | --: |\n")
	for _, c := range loads(o.cells) {
		ours, theirs := r.samples[c.name][evenkeel], r.samples[c.name][nginx]
		ratios := paired(ours, theirs, func(ours, theirs sample) float64 { return ratio(ours.perUnit(), theirs.perUnit()) })
		fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s | %s–%s | %s | %s | %s | %.0f | %.0f |\n", c.name, c.unit,
			median(each(theirs, sample.perUnit)), median(each(ours, sample.perUnit)),
			figure(median(ratios)), figure(slices.Min(ratios)), figure(slices.Max(ratios)), limit(c.bound), limit(c.stretch), verdict(median(ratios), c.bound, c.stretch),
			median(each(theirs, megabytes)), median(each(ours, megabytes)))
	}
}

func megabytes(s sample) float64 { return float64(s.rss) / 1e6 }

func renderRates(b *strings.Builder, o options, r results) {
	if len(loads(o.cells)) == 0 {
		return
	}
	b.WriteString("\n| units per second | direct | nginx | evenkeel |\n| --- | --: | --: | --: |\n")
	for _, c := range loads(o.cells) {
		fmt.Fprintf(b, "| %s |", c.name)
		for _, t := range targets {
			fmt.Fprintf(b, " %.0f |", median(each(r.samples[c.name][t], sample.perSecond)))
		}
		b.WriteString("\n")
	}
	for _, c := range o.cells {
		if c.rate == 0 {
			continue
		}
		fmt.Fprintf(b, "\nSent more than %v after their time in cell %s:", tooLate, c.name)
		for i, t := range targets {
			sum := r.tallies[c.name][t]
			fmt.Fprintf(b, "%s %d of %d by %s", strings.Repeat(",", min(i, 1)), sum.late, sum.asked(), t)
		}
		b.WriteString(". The load and the programs it measures share the cores: most of it is waiting for one.\n")
	}
}

// What evenkeel may add to a time of a stream more than nginx does; the greater one where the machine itself varies more.
const (
	mayAdd      = 0.1 // milliseconds
	mayAddNoisy = 0.3
)

// times are the times of streams with a pace, in milliseconds.
var times = []struct {
	name string
	of   func(sample) float64
}{
	{"TTFT mean", func(s sample) float64 { return s.ttftMean.Seconds() * 1e3 }},
	{"TTFT p99", func(s sample) float64 { return s.ttft99.Seconds() * 1e3 }},
	{"gap p99", func(s sample) float64 { return s.gap99.Seconds() * 1e3 }},
}

// renderLatency shows what the proxies add to the times of the streams whose tokens have a pace.
func renderLatency(b *strings.Builder, o options, r results) {
	for _, c := range o.cells {
		if !c.paced {
			continue
		}
		samples := r.samples[c.name]
		renderTimes(b, c, targets, samples)
		if c.bound > 0 {
			renderAdded(b, samples)
		}
	}
}

// renderTimes shows what each target adds to the times of the streams of a cell.
func renderTimes(b *strings.Builder, c cell, targets []target, samples map[target][]sample) {
	fmt.Fprintf(b, "\n## Time added to %s streams\n\nMilliseconds; direct as it is, the others as what they add to it.\n\n"+
		"| target | TTFT mean | min–max | TTFT p99 | min–max | gap p99 | min–max |\n| --- | --: | --: | --: | --: | --: | --: |\n", c.name)
	for _, t := range targets {
		fmt.Fprintf(b, "| %s |", t)
		for _, time := range times {
			added := paired(samples[t], samples[direct], func(s, base sample) float64 {
				if t == direct {
					return time.of(s)
				}
				return time.of(s) - time.of(base)
			})
			fmt.Fprintf(b, " %.2f | %.2f–%.2f |", median(added), slices.Min(added), slices.Max(added))
		}
		b.WriteString("\n")
	}
}

// renderAdded compares what evenkeel adds to the times of streams with what nginx adds.
func renderAdded(b *strings.Builder, samples map[target][]sample) {
	b.WriteString("\n| evenkeel − nginx | median | min–max | direct's own spread | bound | stretch | verdict |\n| --- | --: | --: | --: | --: | --: | --- |\n")
	for _, time := range times {
		more := paired(samples[evenkeel], samples[nginx], func(ours, theirs sample) float64 { return time.of(ours) - time.of(theirs) })
		base := each(samples[direct], time.of)
		spread := slices.Max(base) - slices.Min(base)
		bound := mayAdd
		if spread > mayAddNoisy {
			bound = mayAddNoisy
		}
		fmt.Fprintf(b, "| %s | %.2f | %.2f–%.2f | %.2f | %g | 0 | %s |\n", time.name, median(more), slices.Min(more), slices.Max(more), spread, bound, verdict(median(more), bound, 0))
	}
	fmt.Fprintf(b, "\nThe bound is %g ms, and %g ms on a machine where direct's own figure varies by more than that.\n", mayAdd, mayAddNoisy)
}

func renderMemory(b *strings.Builder, o options, r results) {
	header := "\n## Memory of open streams\n\nKB (1,000 bytes) of RSS for each open stream above what a fresh proxy has idle after its first requests; each stream has got its fourth event.\n\n" +
		"| cell | streams | nginx KB | evenkeel KB | min–max | bound | stretch | verdict |\n| --- | --: | --: | --: | --: | --: | --: | --- |\n"
	short := false
	for _, c := range o.cells {
		if c.held == 0 {
			continue
		}
		ours := each(r.samples[c.name][evenkeel], sample.kilobytesEach)
		fmt.Fprintf(b, "%s| %s | %d | %.1f | %.1f | %.1f–%.1f | %s | %s | %s |\n", header, c.name, holdable(c.held),
			median(each(r.samples[c.name][nginx], sample.kilobytesEach)), median(ours), slices.Min(ours), slices.Max(ours),
			limit(c.bound), limit(c.stretch), verdict(median(ours), c.bound, c.stretch))
		header, short = "", short || holdable(c.held) < c.held
	}
	if short {
		fmt.Fprintf(b, "\nFewer streams than the name of the cell says: a process may open %d files here, and a proxy needs two for a stream.\n", fileLimit())
	}
}

func renderProofs(b *strings.Builder, o options, r results) {
	if len(loads(o.cells)) == 0 {
		return
	}
	b.WriteString("\n## Everything on\n\nOver all rounds, warm-ups included. Tokens are prompt + output, as evenkeel metered them and as the engines counted them. " +
		fmt.Sprintf("Explained at once: the newest answer, asked about every %v while the load ran. Explained afterwards: of the answers that the ring still held when the load had ended, up to %d, evenly chosen; ", askEvery, mostExplained) +
		"the ring has its default bound. Explained means: one attempt, with its deployment and all candidates of the decision.\n\n" +
		"| cell | asked | counted | logged | tokens metered | tokens of the engines | explained at once | explained afterwards | in the ring |\n" +
		"| --- | --: | --: | --: | --: | --: | --: | --: | --: |\n")
	for _, c := range loads(o.cells) {
		p := r.proofs[c.name]
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d + %d | %d + %d | %d of %d | %d of %d | %d |\n", c.name, p.asked, p.requests, p.lines,
			p.input, p.output, p.engineInput, p.engineOutput, p.sampled, p.sampledOf, p.explained, p.explainedOf, p.inReach)
	}
	for _, problem := range r.unproven() {
		fmt.Fprintf(b, "\nWrong: `%s`\n", problem)
	}
}

func renderTally(b *strings.Builder, o options, r results) {
	b.WriteString("\n## Answers\n\nLost: the client saw an error. Changed: it saw a complete answer that is not what the engine gave, a silent cut for instance.\n\n" +
		"| cell | target | complete | lost | changed | by engine |\n| --- | --- | --: | --: | --: | --- |\n")
	for _, c := range loads(o.cells) {
		for _, t := range targets {
			tallyLine(b, c.name, t, r.tallies[c.name][t])
		}
	}
	if r.many.asked() > 0 {
		tallyLine(b, "burst, once more", evenkeel, r.many)
	}
	for _, c := range loads(o.cells) {
		for _, t := range targets {
			examples(b, c.name, t, r.tallies[c.name][t])
		}
	}
	examples(b, "burst, once more", evenkeel, r.many)
}

func tallyLine(b *strings.Builder, cell string, t target, sum *tally) {
	fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %s |\n", cell, t, sum.complete, sum.lost, sum.changed,
		strings.Join(strings.Fields(strings.Trim(fmt.Sprint(sum.byEngine), "[]")), ", "))
}

func examples(b *strings.Builder, cell string, t target, sum *tally) {
	for _, example := range sum.examples {
		fmt.Fprintf(b, "\n%s, %s: `%s`\n", cell, t, example)
	}
}
