package cli

import (
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

const (
	mostDeployments = 10_000
	mostRequests    = 100_000_000
	mostRate        = 1e6                       // requests per second
	mostPlayed      = 10 * 365 * 24 * time.Hour // of virtual time; a time.Duration ends after 292 years
	mostRouted      = 100_000                   // deployments that balancers know of, over all balancers: each takes some KiB
	mostPrice       = 1e9                       // dollars per million tokens
	mostWait        = float64(24 * time.Hour / time.Second)
)

// ranges are what flags of numbers and times may be if they are given, times in seconds.
var ranges = []struct {
	flag      string
	low, high float64
}{
	{"rho", .001, 100},
	{"rate", .001, mostRate},
	{"speed", .001, mostRate},
	{"requests", 1, mostRequests},
	{"copies", 1, 10_000},
	{"deployments", 1, mostDeployments},
	{"balancers", 1, 10_000},
	{"seeds", 1, 1000},
	{"burn-in", 0, .99},
	{"explain-diff", 0, 1000},
	{"scrape", .001, mostWait},
	{"slo-ttft", .001, mostWait},
	{"slo-itl", 1e-6, mostWait},
}

// checkRanges finds a flag that was given and is out of its range.
func checkRanges(flags *pflag.FlagSet) error {
	for _, r := range ranges {
		flag := flags.Lookup(r.flag)
		if !flag.Changed {
			continue
		}
		word := func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }
		value, err := strconv.ParseFloat(flag.Value.String(), 64)
		if flag.Value.Type() == "duration" {
			var d time.Duration
			d, err = time.ParseDuration(flag.Value.String())
			value = d.Seconds()
			word = func(x float64) string { return time.Duration(x * float64(time.Second)).String() }
		}
		if err != nil || !(value >= r.low && value <= r.high) {
			return usageError{fmt.Errorf("--%s must be from %s to %s, is %s", r.flag, word(r.low), word(r.high), flag.Value)}
		}
	}
	return nil
}

// checkRouted finds more deployments and balancers than fit into memory.
func (f *simulateFlags) checkRouted(x *experiment, row *study.Row) error {
	n := len(row.Engines)
	for i := range x.sides {
		n = max(n, len(x.sides[i].deployments))
	}
	if n*f.balancers > mostRouted {
		return usageError{fmt.Errorf("--balancers %d, each of which knows %d deployments: together these must be %d at most; give fewer of one", f.balancers, n, mostRouted)}
	}
	return nil
}

// checkTrace finds a trace that cannot be played.
func (f *simulateFlags) checkTrace(t *sim.Trace) error {
	if t == nil {
		return nil
	}
	n, last := t.Len(), t.Last()
	if last == 0 {
		return fmt.Errorf("--trace %s: its %s came at one time, which tells nothing of how fast they come; expected at least two times", f.trace, counted(n, "request"))
	}
	if f.requests == 0 && f.copies > mostRequests/n {
		return usageError{fmt.Errorf("--copies %d of a trace of %d requests are more than %d requests; give fewer, or --requests", f.copies, n, mostRequests)}
	}
	if f.speed > 0 {
		return f.checkSpan(float64(n)/last.Seconds()*f.speed*float64(max(1, f.copies)), max(f.requests, n))
	}
	return nil
}

// checkSpan finds requests that come so fast or so slowly that simulating them makes no sense.
func (f *simulateFlags) checkSpan(rate float64, requests int) error {
	given := "the trace"
	switch {
	case f.rho > 0:
		given = fmt.Sprintf("--rho %v", f.rho)
	case f.rate > 0:
		given = fmt.Sprintf("--rate %v", f.rate)
	case f.speed > 0:
		given = fmt.Sprintf("--speed %v", f.speed)
	}
	switch {
	case !(rate <= mostRate):
		return usageError{fmt.Errorf("%s makes %.3g requests a second, expected at most %.0f", given, rate, mostRate)}
	case !(float64(requests)/rate <= mostPlayed.Seconds()):
		return usageError{fmt.Errorf("%s makes %.3g requests a second, of which %d take more than %.0f years; give fewer by --requests, or let them come faster",
			given, rate, requests, mostPlayed.Hours()/24/365)}
	}
	return nil
}

// checkFormat finds that a trace cannot be the public one that --workload says it is.
func (f *simulateFlags) checkFormat(w *study.Workload, format string) error {
	expected := "mooncake"
	if path.Ext(w.File) == ".csv" {
		expected = "azure"
	}
	if format != expected {
		return usageError{fmt.Errorf("--workload %s has the format %s (%s), and --trace %s has the format %s; leave --workload out, or give its file", w.Name, expected, w.File, f.trace, format)}
	}
	return nil
}
