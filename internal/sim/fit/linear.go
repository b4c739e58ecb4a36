package fit

import (
	"math"
	"slices"
)

// vector has a number for each cost, in the order of parameters.
type vector [6]float64

func (v *vector) add(factor float64, w vector) {
	for k := range v {
		v[k] += factor * w[k]
	}
}

// normal is a least squares problem in the form of its normal equations: it wants H·x = g.
type normal struct {
	h [len(vector{})]vector
	g vector
}

// add counts one equation: features·x = value.
func (n *normal) add(weight float64, features vector, value float64) {
	for k, f := range features {
		n.h[k].add(weight*f, features)
		n.g[k] += weight * f * value
	}
}

// sweeps is how often solve goes over all unknowns: enough also where two of them nearly do the same.
const sweeps = 2000

// solve returns the best x with no component below lowest, by coordinate descent. Components outside of mask stay 0.
func (n *normal) solve(mask [len(vector{})]bool, lowest vector) (x vector) {
	for range sweeps {
		moved := 0.0
		for k := range x {
			if !mask[k] || n.h[k][k] <= 0 {
				continue
			}
			residual := n.g[k]
			for j := range x {
				residual -= n.h[k][j] * x[j]
			}
			next := max(lowest[k], x[k]+residual/n.h[k][k])
			moved += math.Abs(next-x[k]) * math.Sqrt(n.h[k][k])
			x[k] = next
		}
		if moved == 0 {
			break
		}
	}
	return x
}

// inverse returns the diagonal of the inverse of H over mask, of which a part in 10^12 is added so that it has one; 0 outside.
func (n *normal) inverse(mask [len(vector{})]bool) (diagonal vector) {
	var at []int
	for k, on := range mask {
		if on && n.h[k][k] > 0 {
			at = append(at, k)
		}
	}
	size := len(at)
	// Gauss-Jordan on [A | I], where A is H with its diagonal scaled to 1: it is symmetric and positive, and needs no pivots.
	a := make([][]float64, size)
	for i, k := range at {
		a[i] = make([]float64, 2*size)
		for j, l := range at {
			a[i][j] = n.h[k][l] / math.Sqrt(n.h[k][k]*n.h[l][l])
		}
		a[i][i] += 1e-12
		a[i][size+i] = 1
	}
	for p := range a {
		pivot := max(a[p][p], 1e-15)
		for j := range a[p] {
			a[p][j] /= pivot
		}
		for i := range a {
			if factor := a[i][p]; i != p && factor != 0 {
				for j := range a[i] {
					a[i][j] -= factor * a[p][j]
				}
			}
		}
	}
	for i, k := range at {
		diagonal[k] = math.Max(0, a[i][size+i]) / n.h[k][k]
	}
	return diagonal
}

// huber is the weight of a residual: 1 up to the width, and from there so that its pull does not grow.
func huber(residual, width float64) float64 {
	if r := math.Abs(residual); r > width {
		return width / r
	}
	return 1
}

// widest returns the width for huber that suits residuals with that spread (95 % of the efficiency of least squares where
// noise is normal), and the spread: a standard deviation, from the median, of at least a thousandth.
func widest(residuals []float64) (width, spread float64) {
	sizes := make([]float64, len(residuals))
	for i, r := range residuals {
		sizes[i] = math.Abs(r)
	}
	spread = max(1e-3, 1.4826*quantile(sizes, 0.5))
	return 1.345 * spread, spread
}

// quantile returns the smallest value that a share q of all does not exceed; 0 of none. It sorts values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, max(0, int(math.Ceil(q*float64(len(values))))-1))]
}
