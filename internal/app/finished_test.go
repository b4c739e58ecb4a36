package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
)

func TestStrangersAreToldOfOnceASecond(t *testing.T) {
	logger, log := linesLogger(slog.LevelInfo)
	a, err := New(parse(t, "endpoints: {e: {url: 'http://127.0.0.1:1'}}"), Options{Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	refuse := func(after time.Duration, id string, stranger bool, want string) {
		t.Helper()
		now = now.Add(after)
		a.finished(proxy.Finished{Stranger: stranger, Record: &exchange.Record{
			Facts: route.Facts{ID: id, API: "chat"}, Started: now, Ended: now, Result: exchange.Rejected, Status: 401,
			Failure: &exchange.Failure{Status: 401, Code: "evenkeel_invalid_api_key"},
		}})
		if got := log.taken(); got != want {
			t.Errorf("%s: logged\n%s\nwant\n%s", id, got, want)
		}
	}
	line := func(id string, more int) string {
		return fmt.Sprintf(`level=INFO msg="request refused before its sender was known" id=%s api=chat status=401 code=evenkeel_invalid_api_key more_since_last=%d`, id, more)
	}
	refuse(0, "a", true, line("a", 0))
	refuse(999*time.Millisecond, "b", true, "")
	refuse(0, "c", true, "")
	refuse(time.Millisecond, "d", true, line("d", 2))
	refuse(0, "of a known one", false,
		`level=INFO msg=exchange id="of a known one" api=chat model="" result=rejected status=401 duration_seconds=0 attempts=0 code=evenkeel_invalid_api_key`)
	refuse(time.Hour, "e", true, line("e", 0))
}

// Every number of the log that has a unit has it in its name, and is the same number in both formats.
func TestLoggedDurationsAreSeconds(t *testing.T) {
	b := newLogBuffer()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	slog.New(slog.NewJSONHandler(b, nil)).LogAttrs(t.Context(), slog.LevelInfo, "exchange", line(proxy.Finished{Record: &exchange.Record{
		Started: now, Ended: now.Add(587_803), Queued: 1_500 * time.Millisecond, Result: exchange.Complete,
		Attempts: []exchange.Attempt{{Outcome: route.Outcome{TTFT: 41_999_600}}},
	}})...)
	var got logLine
	if err := json.Unmarshal([]byte(b.text()), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"duration_seconds": 0.000588, "queued_seconds": 1.5, "ttft_seconds": 0.042} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
