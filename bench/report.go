package main

import (
	"context"
	"fmt"
	"math"
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
	return fmt.Sprintf("%s, %d cores, Linux %s, %s, %s, commit %s", a.cpu, a.cores, a.kernel, runtime.Version(), a.nginx, a.commit)
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
	fmt.Fprintf(&b, "One run of `make bench`: %d rounds, direct, nginx and evenkeel interleaved on the same mock engines over loopback. ", o.rounds)
	fmt.Fprintf(&b, "Medians of the rounds; ratios are paired within each round. CPU time is the process's own, user and system, from /proc: "+
		"all of nginx's processes, all of evenkeel's threads. The load, the engines and the proxy share the machine, so rates say little and CPU time much. "+
		"nginx runs one worker per core, unbuffered, with connections kept on both sides and an access log; evenkeel as it is without "+
		"configuration, with its metrics, the ring for `explain` and a log line per request; both write their logs in batches. Every answer is compared byte for byte with what the engine gives.\n\n")
	for _, c := range o.cells {
		fmt.Fprintf(&b, "- **%s**: %s%s\n", c.name, c.about, length(c, o))
	}
	b.WriteString("\nAn event is one server-sent event: nearly always one token, sent by the engine in its own write.\n")
	renderCPU(&b, o, r)
	renderLatency(&b, o, r)
	renderTally(&b, o, r)
	return b.String()
}

func length(c cell, o options) string {
	if c.timed {
		return fmt.Sprintf("; windows of %v", o.window())
	}
	return fmt.Sprintf("; %d streams for each target", o.streams/o.rounds*o.rounds)
}

func renderCPU(b *strings.Builder, o options, r results) {
	b.WriteString("\n## CPU time\n\n| cell | per | nginx µs | evenkeel µs | evenkeel ÷ nginx | min–max | bound | RSS MB nginx | RSS MB evenkeel |\n" +
		"| --- | --- | --: | --: | --: | --: | --: | --: | --: |\n")
	for _, c := range o.cells {
		ours, theirs := r.samples[c.name][evenkeel], r.samples[c.name][nginx]
		ratios := paired(ours, theirs, func(ours, theirs sample) float64 { return ratio(ours.perUnit(), theirs.perUnit()) })
		bound := "–"
		if c.bound > 0 {
			bound = fmt.Sprintf("%g", c.bound)
			if median(ratios) > c.bound {
				bound += ", missed"
			}
		}
		fmt.Fprintf(b, "| %s | %s | %.2f | %.2f | %s | %s–%s | %s | %.0f | %.0f |\n", c.name, c.unit,
			median(each(theirs, sample.perUnit)), median(each(ours, sample.perUnit)),
			figure(median(ratios)), figure(slices.Min(ratios)), figure(slices.Max(ratios)), bound,
			median(each(theirs, megabytes)), median(each(ours, megabytes)))
	}
	b.WriteString("\n| units per second | direct | nginx | evenkeel |\n| --- | --: | --: | --: |\n")
	for _, c := range o.cells {
		fmt.Fprintf(b, "| %s | %.0f | %.0f | %.0f |\n", c.name, median(each(r.samples[c.name][direct], sample.perSecond)),
			median(each(r.samples[c.name][nginx], sample.perSecond)), median(each(r.samples[c.name][evenkeel], sample.perSecond)))
	}
}

func megabytes(s sample) float64 { return float64(s.rss) / 1e6 }

// renderLatency shows what the proxies add to the times of the streams whose tokens have a pace.
func renderLatency(b *strings.Builder, o options, r results) {
	for _, c := range o.cells {
		if !c.timed || !c.stream {
			continue
		}
		fmt.Fprintf(b, "\n## Time added to %s streams\n\nMilliseconds; direct as it is, the others as what they add to it.\n\n"+
			"| target | TTFT mean | min–max | TTFT p99 | min–max | gap p99 | min–max |\n| --- | --: | --: | --: | --: | --: | --: |\n", c.name)
		for _, t := range targets {
			fmt.Fprintf(b, "| %s |", t)
			for _, of := range []func(sample) time.Duration{
				func(s sample) time.Duration { return s.ttftMean }, func(s sample) time.Duration { return s.ttft99 }, func(s sample) time.Duration { return s.gap99 },
			} {
				added := paired(r.samples[c.name][t], r.samples[c.name][direct], func(s, base sample) float64 {
					if t == direct {
						return of(s).Seconds() * 1e3
					}
					return (of(s) - of(base)).Seconds() * 1e3
				})
				fmt.Fprintf(b, " %.2f | %.2f–%.2f |", median(added), slices.Min(added), slices.Max(added))
			}
			b.WriteString("\n")
		}
	}
}

func renderTally(b *strings.Builder, o options, r results) {
	b.WriteString("\n## Answers\n\nLost: the client saw an error. Changed: it saw a complete answer that is not what the engine gave, a silent cut for instance.\n\n" +
		"| cell | target | complete | lost | changed | by engine |\n| --- | --- | --: | --: | --: | --- |\n")
	for _, c := range o.cells {
		for _, t := range targets {
			sum := r.tallies[c.name][t]
			fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %s |\n", c.name, t, sum.complete, sum.lost, sum.changed,
				strings.Join(strings.Fields(strings.Trim(fmt.Sprint(sum.byEngine), "[]")), ", "))
		}
	}
	for _, c := range o.cells {
		for _, t := range targets {
			for _, example := range r.tallies[c.name][t].examples {
				fmt.Fprintf(b, "\n%s, %s: `%s`\n", c.name, t, example)
			}
		}
	}
}

// paired applies f to the samples of the same round.
func paired(a, b []sample, f func(a, b sample) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}

func each(s []sample, f func(sample) float64) []float64 {
	out := make([]float64, len(s))
	for i := range s {
		out[i] = f(s[i])
	}
	return out
}

// ratio is a ÷ b, NaN where there is nothing to divide by.
func ratio(a, b float64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return a / b
}

// figure prints a ratio; – if there is none.
func figure(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

// median returns NaN of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func mean(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	var sum time.Duration
	for _, x := range d {
		sum += x
	}
	return sum / time.Duration(len(d))
}

// quantile returns the smallest value that at least the share q of the values do not exceed. It sorts d.
func quantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[max(int(math.Ceil(q*float64(len(d))))-1, 0)]
}
