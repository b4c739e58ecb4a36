package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"evenkeel/internal/llm"
	"evenkeel/internal/route"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const docsFile = "../../docs/metrics.md"

func TestDocsAreUpToDate(t *testing.T) {
	want := markdown()
	if *update {
		if err := os.WriteFile(docsFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/metrics.md is not what families.go says; write it anew: go test ./internal/telemetry -run Docs -update")
	}
}

// The documentation is made from families; this holds families against what is really exposed.
func TestDocsCoverWhatIsExposed(t *testing.T) {
	w := &world{models: []string{"large"}, view: route.View{
		Deployments: []route.DeploymentView{{
			ID: "gpu-1/large", Member: true, Foresight: route.Foresight{Answers: 1, Choices: 1}, Signal: route.Signal{At: start},
		}}, Waiting: map[string]int{"large": 1},
	}}
	m := newMetrics(t, w)
	m.Observe(failedOver(), time.Millisecond)
	m.Observe(hedgedFallback(), 0)
	m.Probed(Probe{Name: "gpu-1/large", Result: "ok", TTFT: time.Second, Input: 9, Output: 3})
	m.Heard("gpu-1", "ok")
	m.Listener("data").Certificate(time.Now())
	m.Listener("data").CertificateReloaded(true)
	gathered, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	types := map[dto.MetricType]kind{dto.MetricType_COUNTER: counter, dto.MetricType_GAUGE: gauge, dto.MetricType_HISTOGRAM: histogram}
	exposed := 0
	for _, g := range gathered {
		if !strings.HasPrefix(g.GetName(), "evenkeel_") {
			continue
		}
		exposed++
		i := slices.IndexFunc(families, func(f *family) bool { return f.name == g.GetName() })
		if i < 0 {
			t.Errorf("%s is exposed, but missing in families", g.GetName())
			continue
		}
		var labels []string
		for _, l := range g.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		want := families[i].labelNames()
		slices.Sort(want)
		if types[g.GetType()] != families[i].kind || !slices.Equal(labels, want) {
			t.Errorf("%s is a %v with labels %v, families says %s with %v", g.GetName(), g.GetType(), labels, families[i].kind, want)
		}
	}
	if exposed != len(families) {
		t.Errorf("%d metrics are exposed, families has %d", exposed, len(families))
	}
	for _, f := range families {
		if !strings.Contains(f.query, f.name) || f.answers == "" || f.help == "" {
			t.Errorf("%s lacks help or an example of its own", f.name)
		}
	}
}

func markdown() []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

<!-- Written by a test from internal/telemetry/families.go: go test ./internal/telemetry -run Docs -update -->

Prometheus reads them at ` + "`/metrics`" + ` of the admin listener, as text or as OpenMetrics. What is a state (load, queues, breakers) is read when
the scrape comes; what is counted is counted when a request has ended, so a long stream shows in ` + "`evenkeel_in_flight`" + ` first and in the rest later.
Beside these there are the usual ` + "`go_*` and `process_*`" + ` metrics of the process.

No label takes its value from a client's text: the number of series is bounded by the fleet. Series that speak of a deployment or a
model that left are dropped after an hour.

| metric | type | unit | meaning |
| --- | --- | --- | --- |
`)
	for _, f := range families {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", f.name, f.name, f.kind, f.unit, f.help)
	}
	for _, f := range families {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", f.name, f.help)
		if len(f.labels) > 0 {
			b.WriteString("\n| label | values |\n| --- | --- |\n")
			for _, l := range f.labels {
				fmt.Fprintf(&b, "| `%s` | %s |\n", l.name, l.values)
			}
		}
		if len(f.buckets) > 0 {
			fmt.Fprintf(&b, "\nBuckets: %s.\n", join(f.buckets))
		}
		fmt.Fprintf(&b, "\nExample: %s.\n\n```promql\n%s\n```\n", f.answers, f.query)
	}
	return b.Bytes()
}

func join(buckets []float64) string {
	var s []string
	for _, x := range buckets {
		s = append(s, strconv.FormatFloat(x, 'f', -1, 64))
	}
	return strings.Join(s, ", ")
}

func TestDocsNameEveryClass(t *testing.T) {
	values := attempts.labels[3].values
	for c := llm.None; c.String() != "unknown"; c++ {
		if !strings.Contains(values, "`"+c.String()+"`") {
			t.Errorf("the values of label class do not name %s", c)
		}
	}
}
