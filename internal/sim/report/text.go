package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// JSON writes the rows as one array.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r.Rows())
}

// Text writes the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	rows := r.Rows()
	b.WriteString(r.Title + "\n")
	wide := 0
	for _, f := range r.Facts {
		wide = max(wide, utf8.RuneCountInString(f.Name))
	}
	for _, f := range r.Facts {
		fmt.Fprintf(&b, "  %s%s  %s\n", f.Name, strings.Repeat(" ", wide-utf8.RuneCountInString(f.Name)), f.Value)
	}
	if r.Note != "" {
		b.WriteString("\n" + r.Note + "\n")
	}
	for _, t := range r.tables(rows) {
		b.WriteString("\n")
		if t.title != "" {
			b.WriteString(t.title + "\n")
		}
		b.WriteString(t.text())
	}
	for _, n := range r.remarks(rows) {
		b.WriteString("\n" + n + "\n")
	}
	for _, x := range r.Sections {
		b.WriteString("\n" + x.Title + "\n\n" + x.Text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table is a head and rows of cells; all columns but the first few are numbers.
type table struct {
	title string
	names int // columns that hold names
	head  []string
	rows  [][]string
}

// text lays the table out in columns.
func (t *table) text() string {
	lines := append([][]string{t.head}, t.rows...)
	widths := make([]int, len(t.head))
	for _, l := range lines {
		for i, c := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, l := range lines {
		var out strings.Builder
		for i, c := range l {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i < t.names {
				out.WriteString("  " + c + pad)
			} else {
				out.WriteString("  " + pad + c)
			}
		}
		b.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	return b.String()
}

// tables returns all that is told in tables.
func (r *Report) tables(rows []Row) []table {
	out := []table{r.results(rows)}
	if len(rows) > 1 {
		out = append(out, r.differences(rows))
	}
	if len(rows) > 0 && rows[0].Tenants != nil {
		out = append(out, r.byTenant(rows))
	}
	return out
}

func (r *Report) results(rows []Row) table {
	t := table{names: 1, head: []string{"strategy", "TTFT mean", "±", "p50", "p99", "±", "ITL p99", "goodput", "hit share", "imbalance", "failed", "429"}}
	if r.Priced {
		t.head = append(t.head, "cost")
	}
	for i := range rows {
		x := &rows[i]
		cells := []string{
			x.Strategy, told(x.TTFTMean, seconds), plusMinus(x.TTFTMean, x.TTFTInterval, seconds), told(x.TTFTP50, seconds),
			told(x.TTFTP99, seconds), plusMinus(x.TTFTP99, x.P99Interval, seconds), told(x.ITLP99, seconds), told(x.Goodput, percent), told(x.HitShare, percent),
			told(x.Imbalance, func(i float64) string { return strconv.FormatFloat(i, 'f', 2, 64) }), strconv.Itoa(x.Failed), strconv.Itoa(x.Status429),
		}
		if r.Priced {
			cells = append(cells, told(x.Cost, dollars))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

func (r *Report) differences(rows []Row) table {
	t := table{
		title: "Against " + rows[0].Strategy + ", on the same requests (± is half of a 95 % interval)", names: 1,
		head: []string{"strategy", "TTFT mean", "", "±", "p99", "±", "goodput", "±", "hit share", "failed", "429"},
	}
	if r.Priced {
		t.head = append(t.head, "cost", "±")
	}
	for i := range rows[1:] {
		x := &rows[i+1]
		d := x.Versus
		cells := []string{
			x.Strategy, told(d.TTFTMean, signed(seconds)), change(d.TTFTMean, d.baseTTFT), plusMinus(d.TTFTMean, d.TTFTInterval, seconds), told(d.TTFTP99, signed(seconds)),
			plusMinus(d.TTFTP99, d.P99Interval, seconds), told(d.Goodput, signed(points)), plusMinus(d.Goodput, d.GoodInterval, points), told(d.HitShare, signed(points)),
			fmt.Sprintf("%+d", d.Failed), fmt.Sprintf("%+d", d.Status429),
		}
		if r.Priced {
			cells = append(cells, told(d.Cost, signed(dollars)), plusMinus(d.Cost, d.CostInterval, dollars))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

func (r *Report) byTenant(rows []Row) table {
	t := table{title: "By tenant", names: 2, head: []string{"tenant", "strategy", "requests", "failed", "429", "TTFT mean", "p99", "goodput", "change", "±"}}
	if r.Priced {
		t.head = append(t.head, "cost", "change", "±")
	}
	names := busiest(rows[0].Tenants)
	if more := len(rows[0].Tenants) - len(names); more > 0 {
		t.title += fmt.Sprintf(", the %d with the most requests; the JSON has %d more", len(names), more)
	}
	for _, tenant := range names {
		for i := range rows {
			x := tenantOf(&rows[i], tenant)
			name := Printable(x.Tenant)
			if name == "" {
				name = "(none)"
			}
			cells := []string{
				name, rows[i].Strategy, strconv.Itoa(x.Requests), strconv.Itoa(x.Requests - x.Completed), strconv.Itoa(x.Status429), told(x.TTFTMean, seconds), told(x.TTFTP99, seconds),
				told(x.Goodput, percent), told(x.TTFTChange, signed(seconds)), plusMinus(x.TTFTChange, x.TTFTInterval, seconds),
			}
			if r.Priced {
				cells = append(cells, told(x.Cost, dollars), told(x.CostChange, signed(dollars)), plusMinus(x.CostChange, x.CostInterval, dollars))
			}
			if i == 0 { // the others are held against it
				clear(cells[8:10])
				if r.Priced {
					clear(cells[11:])
				}
			}
			t.rows = append(t.rows, cells)
		}
	}
	return t
}

// Printable returns a name that somebody else chose, such as a client, in a form that does nothing to a terminal: quoted, if it holds
// what cannot be printed.
func Printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return strconv.Quote(name)
	}
	return name
}

// mostTenants is how many a table shows.
const mostTenants = 20

// busiest returns the tenants with the most requests, in order of name.
func busiest(tenants []TenantRow) []string {
	sorted := slices.Clone(tenants)
	slices.SortStableFunc(sorted, func(a, b TenantRow) int { return cmp.Compare(b.Requests, a.Requests) })
	var names []string
	for i := range sorted[:min(len(sorted), mostTenants)] {
		names = append(names, sorted[i].Tenant)
	}
	slices.Sort(names)
	return names
}

// tenantOf returns what a tenant got in a row.
func tenantOf(row *Row, name string) *TenantRow {
	for i := range row.Tenants {
		if row.Tenants[i].Tenant == name {
			return &row.Tenants[i]
		}
	}
	return &TenantRow{Tenant: name}
}

// remarks say what a reader of the tables should know.
func (r *Report) remarks(rows []Row) []string {
	var out, growing, unsure []string
	for i := range rows {
		x := &rows[i]
		if !x.Stable {
			growing = append(growing, x.Strategy)
		}
		if d := x.Versus; d != nil {
			if d.TTFTMean != nil && d.TTFTInterval != nil && math.Abs(*d.TTFTMean) < *d.TTFTInterval {
				unsure = append(unsure, x.Strategy)
			}
			if d.Requests < max(x.Requests, rows[0].Requests) {
				out = append(out, fmt.Sprintf("%s against %s: times and hit share are compared on the %d of %d requests that both answered.",
					x.Strategy, d.Strategy, d.Requests, max(x.Requests, rows[0].Requests)))
			}
		}
		if n := x.Results["client_fault"]; n > 0 {
			out = append(out, fmt.Sprintf("%s: %d requests are longer than the engines can hold.", x.Strategy, n))
		}
	}
	if r.single() {
		out = append(out, "One seed does not tell how far other traffic of the kind would be from it, so there are no intervals: --seeds 5 does.")
	}
	if len(growing) > 0 {
		out = append(out, "Backlog still grew at the end: "+strings.Join(growing, ", ")+". These means grow with the length of the run.")
	}
	if len(unsure) > 0 {
		out = append(out, "Not told apart from "+rows[0].Strategy+" by TTFT: "+strings.Join(unsure, ", ")+". More requests or seeds may.")
	}
	return out
}

// single reports whether one seed was simulated, of traffic of which there is more.
func (r *Report) single() bool {
	return len(r.Policies) > 0 && len(r.Policies[0].Runs) == 1 && r.Policies[0].Runs[0].TraceShare < 1
}

// seconds words a duration with three digits.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case a == 0:
		return "0 s"
	case a >= .9995:
		return digits(s) + " s"
	case a >= .9995e-3:
		return digits(s*1e3) + " ms"
	}
	return digits(s*1e6) + " us"
}

// digits writes a number with about three digits.
func digits(x float64) string {
	places := 2
	switch a := math.Abs(x); {
	case a >= 99.95:
		places = 0
	case a >= 9.995:
		places = 1
	}
	return strconv.FormatFloat(x, 'f', places, 64)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// points words a difference of shares.
func points(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " pp" }

func dollars(d float64) string {
	if math.Abs(d) < 1 {
		return strconv.FormatFloat(d, 'f', 4, 64) + " $"
	}
	return strconv.FormatFloat(d, 'f', 2, 64) + " $"
}

// signed words a difference with its sign.
func signed(word func(float64) string) func(float64) string {
	return func(d float64) string {
		if d >= 0 {
			return "+" + word(d)
		}
		return "-" + word(-d)
	}
}

// change words a difference in percent of what it is a difference to.
func change(d, of *float64) string {
	if d == nil || of == nil || *of == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", 100**d / *of)
}

// plusMinus words half of an interval: "?" if only that is not known.
func plusMinus(x, half *float64, word func(float64) string) string {
	switch {
	case x == nil:
		return "-"
	case half == nil:
		return "?"
	}
	return word(*half)
}

// told words what may not be known.
func told(x *float64, word func(float64) string) string {
	if x == nil {
		return "-"
	}
	return word(*x)
}
