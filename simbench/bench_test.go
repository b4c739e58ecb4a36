//go:build unix

package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// processorTime is the time that this process has spent on processors, the collector's work counted in.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRow says how many requests of rows with 64 deployments a minute of one core simulates. One operation is one request.
func BenchmarkRow(b *testing.B) {
	t, err := readTraces(options{root: ".."})
	if err != nil {
		b.Fatal(err)
	}
	f := func(s spec, strategy string) {
		b.Run(fmt.Sprintf("%s/%s", s.name(), strategy), func(b *testing.B) {
			row, err := s.row(t)
			if err != nil {
				b.Fatal(err)
			}
			row.Requests = b.N
			p, err := study.Prepare(row, 1)
			if err != nil {
				b.Fatal(err)
			}
			policy, err := study.Strategy(strategy)
			if err != nil {
				b.Fatal(err)
			}
			o, err := p.Options(policy, 1)
			if err != nil {
				b.Fatal(err)
			}
			fleet, err := sim.New(o)
			if err != nil {
				b.Fatal(err)
			}
			began := processorTime(b)
			b.ReportAllocs()
			b.ResetTimer()
			if err := fleet.Finish(p.Last); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)/(processorTime(b)-began).Minutes(), "requests/min/core")
			running := 0.0
			for _, n := range fleet.Result().InSystem {
				running += n
			}
			b.ReportMetric(running/float64(s.N), "running")
			b.ReportMetric(fleet.Result().TTFT.Mean()*1e3, "TTFT-ms")
		})
	}
	for _, rho := range []float64{.7, .9} {
		for _, strategy := range []string{"least_tokens", "p2c_ewma"} {
			f(spec{Workload: "azure-conversation", Engine: "vllm-8192", N: 64, Rho: rho}, strategy)
		}
	}
	f(spec{Workload: "mooncake-conversation", Engine: "vllm-2048", N: 64, Rho: .9, NoCache: true}, "least_tokens")
}
