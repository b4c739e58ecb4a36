package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// tooSlow is the share of direct's rate below which a target counts as overloaded by streams that have a pace.
const tooSlow = 0.95

// renderPeers writes the report of a run with peers.
func renderPeers(a about, o options, r results, guests []guest) string {
	all := slices.Clone(targets)
	for _, g := range guests {
		if g.absent == "" {
			all = append(all, g.name)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What other balancers and gateways cost\n\nMeasured %s on %s. Load average at the start: %s.\n\n", a.date, a.machine(), a.load)
	fmt.Fprintf(&b, "One run of `make bench-peers`: %d rounds, all targets interleaved on the same three mock engines for each model over loopback. Windows of %v, after a warm-up. "+
		"Medians of the rounds; ratios are paired within each round. CPU time is user and system, from /proc, of all processes and threads of a target. "+
		"The load, the engines and the proxies share the machine: before the next target has its turn, a peer has come to rest, for at most %v.\n\n", o.rounds, o.window(), restPatience)
	for _, c := range o.cells {
		fmt.Fprintf(&b, "- **%s**: %s\n", c.name, c.about)
	}
	b.WriteString("\nAn event is one server-sent event: nearly always one token, sent by the engine in its own write. The targets do different work for each request; " +
		"what evenkeel does is listed in RESULTS.md, and all of it is on here too.\n")
	renderGuests(&b, guests)
	renderRatios(&b, o, r, all)
	for _, c := range o.cells {
		renderPeerCell(&b, c, r, all)
	}
	renderPeerTally(&b, o, r, all)
	for _, problem := range r.unproven() {
		fmt.Fprintf(&b, "\nWrong: `%s`\n", problem)
	}
	return b.String()
}

// renderGuests lists the peers: how they run, or why they do not.
func renderGuests(b *strings.Builder, guests []guest) {
	b.WriteString("\n## Who takes part\n\nnginx and evenkeel run as in RESULTS.md. Answers are compared byte for byte with those of the engines; those of a peer that encodes them anew, with what they say: " +
		"text, finish reason, tokens used, the number of events and [DONE].\n\n| peer | version | runs as | answers compared by |\n| --- | --- | --- | --- |\n")
	for _, g := range guests {
		by := "bytes"
		switch {
		case g.absent != "":
			by = "– (not measured)"
		case g.recodes:
			by = "what they say"
		}
		version := g.version
		if version == "" {
			version = "–"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", g.name, version, g.how, by)
	}
	for _, g := range guests {
		if g.absent != "" {
			fmt.Fprintf(b, "\n%s was not measured:\n\n```\n%s\n```\n", g.name, reason(g.absent))
		}
	}
}

// renderRatios is the summary: one line for each target.
func renderRatios(b *strings.Builder, o options, r results, all []target) {
	b.WriteString("\n## CPU time per unit ÷ nginx\n\n| target |")
	for _, c := range o.cells {
		fmt.Fprintf(b, " %s |", c.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --: |", len(o.cells)) + "\n")
	for _, t := range all {
		if t == direct {
			continue
		}
		fmt.Fprintf(b, "| %s |", t)
		for _, c := range o.cells {
			fmt.Fprintf(b, " %s |", figure(median(ratios(r.samples[c.name], t))))
		}
		b.WriteString("\n")
	}
}

// ratios are a target's CPU time per unit as a multiple of nginx's, by round.
func ratios(samples map[target][]sample, t target) []float64 {
	return paired(samples[t], samples[nginx], func(s, base sample) float64 { return ratio(s.perUnit(), base.perUnit()) })
}

func renderPeerCell(b *strings.Builder, c cell, r results, all []target) {
	samples, dropped := r.samples[c.name], r.dropped[c.name]
	fmt.Fprintf(b, "\n## Cell %s\n\n| target | µs per %s | ÷ nginx | min–max | RSS MB | %ss per second | ÷ direct |\n| --- | --: | --: | --: | --: | --: | --: |\n", c.name, c.unit, c.unit)
	var overloaded []string
	ran := slices.DeleteFunc(slices.Clone(all), func(t target) bool { return len(samples[t]) == 0 })
	for _, t := range ran {
		pace := median(paired(samples[t], samples[direct], func(s, base sample) float64 { return ratio(s.perSecond(), base.perSecond()) }))
		cpu, mb := "– | – | –", "–"
		if t != direct {
			x := ratios(samples, t)
			cpu = fmt.Sprintf("%s | %s | %s", figure(median(each(samples[t], sample.perUnit))), figure(median(x)), span(x))
			mb = fmt.Sprintf("%.0f", median(each(samples[t], megabytes)))
		}
		fmt.Fprintf(b, "| %s | %s | %s | %.0f | %s |\n", t, cpu, mb, median(each(samples[t], sample.perSecond)), figure(pace))
		if c.paced && !(pace >= tooSlow) {
			overloaded = append(overloaded, string(t))
		}
	}
	if len(overloaded) > 0 {
		fmt.Fprintf(b, "\nOverloaded, with less than %g of the events of a direct connection in the same time: %s. Their times are mostly those of queues.\n", tooSlow, strings.Join(overloaded, ", "))
	}
	for _, t := range all {
		if err := dropped[t]; err != nil {
			fmt.Fprintf(b, "\n%s took no more part after %d rounds:\n\n```\n%s\n```\n", t, len(samples[t]), reason(err.Error()))
		}
	}
	if c.paced {
		renderTimes(b, c, ran, samples)
	}
}

func renderPeerTally(b *strings.Builder, o options, r results, all []target) {
	b.WriteString("\n## Answers\n\nOf all that was asked, warm-ups included. Lost: the client saw an error. Changed: it saw a complete answer that is not what an engine gave, a silent cut for instance.\n\n" +
		"| cell | target | complete | lost | changed | by engine |\n| --- | --- | --: | --: | --: | --- |\n")
	for _, c := range o.cells {
		for _, t := range all {
			tallyLine(b, c.name, t, r.tallies[c.name][t])
		}
	}
	for _, c := range o.cells {
		for _, t := range all {
			examples(b, c.name, t, r.tallies[c.name][t])
		}
	}
}

// span prints the least and the greatest of some ratios; – if one of them is none.
func span(x []float64) string {
	if slices.ContainsFunc(x, math.IsNaN) {
		return "–"
	}
	return figure(slices.Min(x)) + "–" + figure(slices.Max(x))
}

// reason is the end of a text that may hold a program's output, as it can stand in the report.
func reason(text string) string { return strings.TrimSpace(strings.ToValidUTF8(tail(text), "?")) }
