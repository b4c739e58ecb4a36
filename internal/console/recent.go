package console

import (
	"fmt"
	"strconv"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/ledger"
)

// Recent is the list of /explain: the request that ended last comes first.
type Recent struct {
	Kept     int       `json:"kept"`    // requests that can be explained
	Evicted  uint64    `json:"evicted"` // dropped since the start to make room
	Requests []Summary `json:"requests"`
}

// Summary is one line of Recent.
type Summary struct {
	ID              string    `json:"id"`
	Arrived         time.Time `json:"arrived"`
	Model           string    `json:"model"`                // that the client asked for
	Deployment      string    `json:"deployment,omitempty"` // of the last attempt
	Result          string    `json:"result"`
	Status          int       `json:"status"`
	DurationSeconds float64   `json:"duration_seconds"`
	QueuedSeconds   float64   `json:"queued_seconds"`
	TTFTSeconds     float64   `json:"ttft_seconds,omitempty"` // of the last attempt
	Attempts        int       `json:"attempts"`
	FallbackDepth   int       `json:"fallback_depth"`
}

func summarise(u ledger.Usage, records []*exchange.Record) *Recent {
	l := &Recent{Kept: u.Records, Evicted: u.Evicted, Requests: make([]Summary, len(records))}
	for i, r := range records {
		s := Summary{
			ID: r.Facts.ID, Arrived: r.Started, Model: r.Facts.Model, Result: string(r.Result), Status: r.Status,
			DurationSeconds: r.Ended.Sub(r.Started).Seconds(), QueuedSeconds: r.Queued.Seconds(), Attempts: len(r.Attempts), FallbackDepth: r.Depth,
		}
		if a := r.Last(); a != nil {
			s.Deployment, s.TTFTSeconds = a.Deployment, a.Outcome.TTFT.Seconds()
		}
		l.Requests[i] = s
	}
	return l
}

// Text lays the list out for people.
func (l *Recent) Text() string {
	text := fmt.Sprintf("%s of %s that can be explained, the last to end first; /explain/ID tells more.\n\n", grouped(float64(len(l.Requests))), count(l.Kept, "request"))
	rows := [][]string{{"arrived (UTC)", "id", "model", "deployment", "result", "status", "took", "queued", "TTFT", "attempts"}}
	for i := range l.Requests {
		s := &l.Requests[i]
		rows = append(rows, []string{
			s.Arrived.UTC().Format("15:04:05.000"), clean(s.ID), orDash(clean(s.Model)), orDash(clean(s.Deployment)), clean(s.Result),
			orDash(positive(s.Status)), seconds(s.DurationSeconds), known(s.QueuedSeconds), known(s.TTFTSeconds), strconv.Itoa(s.Attempts),
		})
	}
	return text + table("", map[int]bool{5: true, 6: true, 7: true, 8: true, 9: true}, rows)
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func known(s float64) string {
	if s <= 0 {
		return "-"
	}
	return seconds(s)
}
