package fit

import (
	"math"
	"testing"
)

func TestMinimise(t *testing.T) {
	f := func(name string, loss func(vector) float64, reach, want vector, evaluations int) {
		t.Helper()
		n := 0
		got := minimise(func(x vector) float64 { n++; return 1 + loss(x) }, point{loss: 1 + loss(vector{})}, reach, evaluations, 1e-12)
		for k := range want {
			if math.Abs(got.at[k]-want[k]) > 1e-3 {
				t.Errorf("%s: the least is at %v, want %v", name, got.at, want)
				break
			}
		}
		if n > evaluations+len(want)+2 {
			t.Errorf("%s: %d evaluations, want at most %d and those of one more move", name, n, evaluations)
		}
	}
	square := func(x float64) float64 { return x * x }
	f("bowl", func(x vector) float64 { return square(x[0]-1) + 10*square(x[1]-2) + square(x[2]+3) }, vector{1, 1, 1}, vector{1, 2, -3}, 500)
	f("what has no reach stays", func(x vector) float64 { return square(x[0]-1) + square(x[1]-2) }, vector{1}, vector{1}, 200)
	f("banana", func(x vector) float64 { return square(1-x[0]) + 100*square(x[1]-x[0]*x[0]) }, vector{0.5, 0.5}, vector{1, 1}, 500)
	f("nothing to move", func(vector) float64 { return 0 }, vector{}, vector{}, 10)
}

func TestSolve(t *testing.T) {
	all := [len(vector{})]bool{true, true, true, true, true, true}
	var n normal
	n.add(1, vector{1, 1}, 3)
	n.add(1, vector{1, -1}, 5)
	f := func(mask [len(vector{})]bool, want vector) {
		t.Helper()
		got := n.solve(mask, vector{})
		for k := range want {
			if math.Abs(got[k]-want[k]) > 1e-9 {
				t.Errorf("got %v, want %v", got, want)
				break
			}
		}
	}
	f(all, vector{4}) // 4 and −1 if it could be negative
	f([len(vector{})]bool{false, true}, vector{})
	n.add(1, vector{0, 0, 2}, 5)
	f(all, vector{4, 0, 2.5})
	if got, want := n.inverse(all), (vector{0.5, 0.5, 0.25}); math.Abs(got[0]-want[0])+math.Abs(got[1]-want[1])+math.Abs(got[2]-want[2]) > 1e-9 || got[3] != 0 {
		t.Errorf("the diagonal of the inverse is %v, want %v", got, want)
	}
	twins := normal{}
	twins.add(1, vector{1, 1}, 1)
	if got := twins.inverse(all); !(got[0] > 1e6) {
		t.Errorf("what cannot be told apart has a variance of %v", got)
	}
}
