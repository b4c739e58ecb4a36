package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// demoReport sets the two strategies side by side and says what it comes to.
func demoReport(first, second *tally, engines []string, width int) []line {
	lines := []line{{}}
	lines = append(lines, comparison(first, second, engines)...)
	for _, text := range conclusion(first, second, engines) {
		lines = append(lines, line{})
		for _, part := range wrap(text, width) {
			lines = append(lines, line{{part, ""}})
		}
	}
	return append(lines, total(first, second)...)
}

// wrap breaks text between words into lines of at most width columns.
func wrap(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

func comparison(a, b *tally, engines []string) []line {
	rows := [][]cell{{{"", ""}, {a.strategy, bold}, {b.strategy, bold}}}
	numbers := func(name string, of func(*tally) string) {
		rows = append(rows, []cell{{name, faint}, {of(a), ""}, {of(b), ""}})
	}
	times := func(name string, of func(*tally) time.Duration) {
		x, y := cell{brief(of(a)), ""}, cell{brief(of(b)), ""}
		if of(a) > 0 && of(b) > 0 {
			switch {
			case of(a) < of(b):
				x.style = green
			case of(b) < of(a):
				y.style = green
			}
		}
		rows = append(rows, []cell{{name, faint}, x, y})
	}
	numbers("requests", func(t *tally) string { return strconv.Itoa(t.asked) })
	numbers("  complete", func(t *tally) string { return strconv.Itoa(t.complete) })
	numbers("  cut by the kill, client told", func(t *tally) string { return strconv.Itoa(t.toldCut) })
	numbers("  failed", func(t *tally) string { return strconv.Itoa(t.failures()) })
	if a.dropped+b.dropped > 0 {
		numbers("  dropped when interrupted", func(t *tally) string { return strconv.Itoa(t.dropped) })
	}
	numbers("moved to another engine", func(t *tally) string { return strconv.Itoa(t.moved) })
	times("TTFT mean", func(t *tally) time.Duration { return t.ttft.mean() })
	times("     p50", func(t *tally) time.Duration { return t.ttft.quantile(0.50) })
	times("     p99", func(t *tally) time.Duration { return t.ttft.quantile(0.99) })
	numbers("tokens per second", func(t *tally) string { return fmt.Sprintf("%.0f", t.tokensPerSecond()) })
	for _, e := range engines {
		numbers("share of "+e, func(t *tally) string { return percent(t.share(e)) })
	}
	for _, e := range engines {
		numbers("longest queue at "+e, func(t *tally) string { return strconv.Itoa(t.engines[e].longestQueue) })
	}
	return columns(rows, 1, "  ")
}

// aboutEqual is the difference of p99s that says nothing: so much comes and goes from run to run.
const aboutEqual = 0.25

// conclusion says in words what the figures say, and why.
func conclusion(a, b *tally, engines []string) []string {
	before, after := a.ttft.quantile(0.99), b.ttft.quantile(0.99)
	if before == 0 || after == 0 {
		return []string{"Nothing can be compared: there are no answers under both strategies."}
	}
	var first string
	switch ratio := float64(before) / float64(after); {
	case ratio >= 1+aboutEqual:
		first = fmt.Sprintf("Same traffic, same kill: under %s the p99 of the time to first token (TTFT) is %.1f times shorter.", b.strategy, ratio)
	case ratio <= 1/(1+aboutEqual):
		first = fmt.Sprintf("This time %s was no better: its p99 of the time to first token (TTFT) is %.1f times longer. "+
			"Queues take time to build: try a longer --duration.", b.strategy, 1/ratio)
	default:
		first = "This time both strategies were about equal in the p99 of the time to first token (TTFT). Queues take time to build: try a longer --duration."
	}
	worst := engines[0]
	for _, e := range engines {
		if a.engines[e].longestQueue > a.engines[worst].longestQueue {
			worst = e
		}
	}
	qa, qb := a.engines[worst].longestQueue, b.engines[worst].longestQueue
	if qa <= qb || float64(before) < (1+aboutEqual)*float64(after) {
		return []string{first}
	}
	queued := "none queued"
	if qb > 0 {
		queued = fmt.Sprintf("no more than %d queued", qb)
	}
	return []string{first, fmt.Sprintf("Why: %s gives every engine as many requests as the others, and %s cannot serve its part (%s): up to %d queued there. "+
		"%s goes by how soon each engine is likely to answer: %s got %s, and %s.",
		a.strategy, worst, percent(a.share(worst)), qa, b.strategy, worst, percent(b.share(worst)), queued)}
}

// total is the account of every request, with the reasons of those that failed.
func total(a, b *tally) []line {
	failed := span{fmt.Sprintf("%d failed", a.failures()+b.failures()), green}
	if a.failures()+b.failures() > 0 {
		failed.style = red
	}
	l := line{{fmt.Sprintf("%d requests: %d complete, %d cut by the kill and told so, ", a.asked+b.asked, a.complete+b.complete, a.toldCut+b.toldCut), ""}, failed}
	if n := a.dropped + b.dropped; n > 0 {
		l = append(l, span{fmt.Sprintf(", %d dropped when interrupted", n), yellow})
	}
	lines := []line{{}, append(l, span{".", ""})}
	for _, t := range []*tally{a, b} {
		for _, f := range counts(t.failed) {
			lines = append(lines, line{{fmt.Sprintf("  %d failed under %s: %s", f.n, t.strategy, f.what), red}})
		}
	}
	return lines
}

// nextSteps says how to go on, from the running demo or without it. program is how this one is called.
func nextSteps(f *demoFleet, program string, keep bool) []line {
	command := func(text string) line { return line{{"  " + text, cyan}} }
	request := func(url, model string) []line {
		return []line{
			command("curl -N " + url + "/v1/chat/completions \\"),
			command("  -H 'content-type: application/json' \\"),
			command(`  -d '{"model": "` + model + `", "stream": true, "max_tokens": 40,`),
			command(`       "messages": [{"role": "user", "content": "Hello"}]}'`),
		}
	}
	lines := []line{{}}
	if keep {
		lines = append(lines, line{{"Balancer and engines stay up until Ctrl-C. Try, in another terminal:", bold}})
		lines = append(lines, request(f.data, demoModel)...)
		lines = append(lines, command(program+" explain --admin-url "+f.admin+" last"), command("curl '"+f.admin+"/deployments?format=text'"), line{})
	}
	lines = append(lines, line{{"Next: your own engines (vLLM, SGLang, llama.cpp, Ollama, ...) behind it:", bold}},
		command(program+" serve http://gpu-1:8000 http://gpu-2:8000"))
	if !keep {
		lines = append(lines, request("http://127.0.0.1:8080", "YOUR-MODEL")...)
	}
	return append(lines, command(program+" explain last   # why did it go where it went?"))
}
