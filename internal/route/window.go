package route

import "time"

// windowCells is how finely a window forgets.
const windowCells = 10

// window counts results of the last while. The zero value is empty.
type window struct {
	start time.Time // of cell 0; what is counted is time since then, so that a clock that is set changes nothing
	span  time.Duration
	last  int64 // number of the newest cell
	cells [windowCells]Tally
}

// Tally counts results.
type Tally struct{ OK, Failed, Limited int }

// Total is the number of all results.
func (t Tally) Total() int { return t.OK + t.Failed + t.Limited }

// at returns the cell of now, after what is too old was dropped.
func (w *window) at(now time.Time, span time.Duration) *Tally {
	if w.span != span { // empty, or the cells of another length count for nothing here
		*w = window{start: now, span: span}
	}
	n := max(int64(now.Sub(w.start)/(span/windowCells)), w.last)
	if n-w.last >= windowCells {
		w.cells = [windowCells]Tally{}
	} else {
		for i := w.last + 1; i <= n; i++ {
			w.cells[i%windowCells] = Tally{}
		}
	}
	w.last = n
	return &w.cells[n%windowCells]
}

// sum counts the results of the window that ends now.
func (w *window) sum(now time.Time, span time.Duration) Tally {
	w.at(now, span)
	var s Tally
	for i := range w.cells {
		s.OK += w.cells[i].OK
		s.Failed += w.cells[i].Failed
		s.Limited += w.cells[i].Limited
	}
	return s
}
