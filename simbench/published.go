package main

// whole is the variant that plays a trace once from its beginning to its end, and measures all of it.
const whole = "whole"

// rough are figures of an earlier simulation by other code of the same setting: the Mooncake conversation trace, 8 engines of Dynamo's
// curves that compute one prompt at a time with caches of 2,000 blocks of 512 tokens, metrics read every 50 ms. Mean and p99 TTFT
// in seconds.
var rough = []struct {
	what     string // as it was called there
	policies []string
	rho07    [2]float64
	rho1     [2]float64
}{
	{"round robin", []string{"round_robin (bare)"}, [2]float64{1.90, 13.4}, [2]float64{10.1, 44.4}},
	{"least outstanding", []string{"least_connections (bare)"}, [2]float64{1.31, 9.2}, [2]float64{3.71, 15.5}},
}

// published compares with those figures.
func (b *bench) published(d document, tables []*table) {}
