package console

import (
	"cmp"
	"fmt"
	"slices"
)

// Text tells the decision to people as Explanation.Text does: a line about what it rests on, and below it the field.
func (d *Decision) Text() string { return d.why() + "\n\n" + candidates(d) }

// candidates lays out the field of a decision: the chosen one first, then by score, then who was cut and why.
func candidates(d *Decision) string {
	field := slices.Clone(d.Candidates)
	slices.SortStableFunc(field, func(a, b Candidate) int {
		if byRank := cmp.Compare(d.rank(&a), d.rank(&b)); byRank != 0 || a.Score == nil || b.Score == nil {
			return byRank
		}
		return cmp.Compare(*a.Score, *b.Score)
	})
	columns := columnsOf(field)
	head, right := []string{" ", "deployment"}, map[int]bool{}
	for _, c := range columns {
		right[len(head)] = true
		head = append(head, c.head)
	}
	rows := [][]string{head}
	for i := range field {
		c := &field[i]
		row := []string{" ", clean(c.Deployment)}
		if d.rank(c) == rankChosen {
			row[0] = ">"
		}
		for _, column := range columns {
			row = append(row, column.cell(c))
		}
		rows = append(rows, append(row, c.reason()))
	}
	text := table("   ", right, rows)
	for _, o := range d.Omitted {
		why := ", eligible"
		if o.Cut != "" {
			why = ": " + cutText(o.Cut)
		}
		text += fmt.Sprintf("      and %s more%s\n", grouped(float64(o.Count)), why)
	}
	return text
}

// column is one number about candidates.
type column struct {
	head string
	cell func(*Candidate) string
}

// columnsOf returns the columns that say something about these candidates.
func columnsOf(field []Candidate) []column {
	var columns []column
	var terms []string
	weighted, learned := false, false
	for i := range field {
		for _, t := range field[i].Terms {
			if !slices.Contains(terms, t.Name) {
				terms = append(terms, t.Name)
				columns = append(columns, column{clean(t.Name), func(c *Candidate) string { return c.term(t.Name) }})
			}
		}
		weighted = weighted || field[i].Weight != 1
		learned = learned || field[i].Samples > 0
	}
	if len(terms) > 1 {
		columns = append(columns, column{"score", (*Candidate).score})
	}
	columns = append(columns,
		column{"in flight", func(c *Candidate) string { return grouped(float64(c.InFlight)) }},
		column{"work tokens", func(c *Candidate) string { return grouped(float64(c.WorkTokens)) }})
	if learned {
		columns = append(columns, column{"TTFT", (*Candidate).ttft})
	}
	if weighted {
		columns = append(columns, column{"weight", func(c *Candidate) string { return number(c.Weight) }})
	}
	return columns
}

const (
	rankChosen = iota
	rankScored
	rankUnscored
	rankCut
)

func (d *Decision) rank(c *Candidate) int {
	switch {
	case c.Deployment == d.Chosen:
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
