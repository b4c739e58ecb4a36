package console

import (
	"fmt"
	"slices"
)

// candidates lays out the field of a decision: the chosen one first, then by score, then who was cut and why.
func candidates(d *Decision) string {
	field := slices.Clone(d.Candidates)
	slices.SortStableFunc(field, func(a, b Candidate) int { return d.rank(&a) - d.rank(&b) })
	slices.SortStableFunc(field, func(a, b Candidate) int {
		if d.rank(&a) != rankScored || d.rank(&b) != rankScored {
			return 0
		}
		switch {
		case *a.Score < *b.Score:
			return -1
		case *a.Score > *b.Score:
			return 1
		}
		return 0
	})
	var terms []string
	weighted, known := false, false
	for i := range field {
		c := &field[i]
		for _, t := range c.Terms {
			if !slices.Contains(terms, t.Name) {
				terms = append(terms, t.Name)
			}
		}
		weighted = weighted || c.Weight != 1
		known = known || c.Samples > 0
	}
	head := []string{" ", "deployment"}
	for _, t := range terms {
		head = append(head, clean(t))
	}
	if len(terms) > 1 {
		head = append(head, "score")
	}
	head = append(head, "in flight", "work tokens")
	if known {
		head = append(head, "TTFT")
	}
	if weighted {
		head = append(head, "weight")
	}
	right := map[int]bool{}
	for i := 2; i < len(head); i++ {
		right[i] = true
	}
	rows := [][]string{head}
	for i := range field {
		c := &field[i]
		row := []string{" ", clean(c.Deployment)}
		if c.Deployment == d.Chosen {
			row[0] = ">"
		}
		for _, t := range terms {
			row = append(row, c.term(t))
		}
		if len(terms) > 1 {
			row = append(row, c.score())
		}
		row = append(row, grouped(float64(c.InFlight)), grouped(float64(c.WorkTokens)))
		if known {
			row = append(row, c.ttft())
		}
		if weighted {
			row = append(row, number(c.Weight))
		}
		rows = append(rows, append(row, c.reason()))
	}
	text := table("   ", right, rows)
	for _, o := range d.Omitted {
		if o.Cut == "" {
			text += fmt.Sprintf("     and %s more, eligible\n", grouped(float64(o.Count)))
		} else {
			text += fmt.Sprintf("     and %s more: %s\n", grouped(float64(o.Count)), cutText(o.Cut))
		}
	}
	return text
}

const (
	rankChosen = iota
	rankScored
	rankUnscored
	rankCut
)

func (d *Decision) rank(c *Candidate) int {
	switch {
	case c.Deployment == d.Chosen && d.Chosen != "":
		return rankChosen
	case c.Cut != "":
		return rankCut
	case c.Score == nil:
		return rankUnscored
	}
	return rankScored
}

func (c *Candidate) term(name string) string {
	for _, t := range c.Terms {
		if t.Name == name {
			return number(t.Value)
		}
	}
	return "-"
}

func (c *Candidate) score() string {
	if c.Score == nil {
		return "-"
	}
	return number(*c.Score)
}

// ttft is the expected time to first token; of a newcomer it is only derived from the others'.
func (c *Candidate) ttft() string {
	switch {
	case c.TTFTSeconds <= 0:
		return "-"
	case c.Samples == 0:
		return "~" + seconds(c.TTFTSeconds)
	}
	return seconds(c.TTFTSeconds)
}
