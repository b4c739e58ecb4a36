package fit

import (
	"cmp"
	"slices"
)

// point is a place of the simplex with its loss.
type point struct {
	at   vector
	loss float64
}

// minimise looks for the least loss around start by the method of Nelder and Mead, which needs no slopes: what a model with queues
// says jumps at places. The sides of the first simplex are reach; what has none stays. It ends after so many evaluations, or
// when the corners of the simplex differ by less than a share of tolerance in their loss.
func minimise(loss func(vector) float64, start point, reach vector, evaluations int, tolerance float64) point {
	corners := []point{start}
	for k, by := range reach {
		if by > 0 {
			at := start.at
			at[k] += by
			corners = append(corners, point{at, loss(at)})
			evaluations--
		}
	}
	last := len(corners) - 1
	if last == 0 {
		return start
	}
	order := func(a, b point) int { return cmp.Compare(a.loss, b.loss) }
	for evaluations > 0 {
		slices.SortStableFunc(corners, order)
		if corners[last].loss <= corners[0].loss*(1+tolerance) {
			break
		}
		var centre vector // of all but the worst
		for _, c := range corners[:last] {
			centre.add(1/float64(last), c.at)
		}
		try := func(factor float64) point { // away from the worst, in multiples of its distance from the centre
			at := centre
			at.add(factor, centre)
			at.add(-factor, corners[last].at)
			evaluations--
			return point{at, loss(at)}
		}
		switch p := try(1); {
		case p.loss < corners[0].loss:
			if further := try(2); further.loss < p.loss {
				p = further
			}
			corners[last] = p
		case p.loss < corners[last-1].loss:
			corners[last] = p
		default:
			factor := -0.5
			if p.loss < corners[last].loss {
				factor = 0.5
			}
			if q := try(factor); q.loss < min(p.loss, corners[last].loss) {
				corners[last] = q
				continue
			}
			for i := range corners[1:] { // shrink
				c := &corners[1+i]
				at := corners[0].at
				at.add(0.5, c.at)
				at.add(-0.5, corners[0].at)
				*c = point{at, loss(at)}
				evaluations--
			}
		}
	}
	slices.SortStableFunc(corners, order)
	return corners[0]
}
