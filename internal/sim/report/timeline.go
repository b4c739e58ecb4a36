package report

// timeline sums up amounts over time. It has few bins however long it lasts: they grow with it.
type timeline struct {
	width float64 // of a bin, in seconds
	bins  []float64
}

const (
	mostBins   = 120 // then two become one
	firstWidth = 0.125
)

// add adds an amount at a moment, in seconds from 0.
func (t *timeline) add(at, amount float64) { t.bins[t.bin(at)] += amount }

// spread adds the time from one moment to another, each part of it where it is.
func (t *timeline) spread(from, to float64) {
	last := t.bin(to)
	for i := t.bin(from); i <= last; i++ {
		t.bins[i] += max(0, min(to, float64(i+1)*t.width)-max(from, float64(i)*t.width))
	}
}

// bin returns the index of the bin of a moment, which is there then.
func (t *timeline) bin(at float64) int {
	if t.width == 0 {
		t.width = firstWidth
	}
	for at >= t.width*mostBins {
		t.halve()
	}
	i := int(max(0, at) / t.width)
	for len(t.bins) <= i {
		t.bins = append(t.bins, 0)
	}
	return i
}

// halve makes one bin of each two.
func (t *timeline) halve() {
	t.width *= 2
	for i, x := range t.bins {
		if i%2 == 0 {
			t.bins[i/2] = x
		} else {
			t.bins[i/2] += x
		}
	}
	t.bins = t.bins[:(len(t.bins)+1)/2]
}

// widen gives the timeline bins of at least this width.
func (t *timeline) widen(width float64) {
	if t.width == 0 {
		t.width = firstWidth
	}
	for t.width < width {
		t.halve()
	}
}

// over returns t / whole for each bin, negative where whole is 0. Both must have been added to at the same moments.
func (t *timeline) over(whole *timeline) []float64 {
	ratios := make([]float64, len(whole.bins))
	for i, n := range whole.bins {
		ratios[i] = -1
		if n > 0 {
			ratios[i] = t.bins[i] / n
		}
	}
	return ratios
}
