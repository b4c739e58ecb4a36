package app

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/proxy"
	"evenkeel/internal/route"
)

func TestStrangersAreToldOfOnceASecond(t *testing.T) {
	logger, log := linesLogger(slog.LevelInfo)
	a, err := New(parse(t, "endpoints: {e: {url: 'http://127.0.0.1:1'}}"), Options{Logger: logger, Lines: Lines{Out: log}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	times := regexp.MustCompile(`(?m)^time=\S+ `)
	taken := func() string { return times.ReplaceAllString(log.taken(), "") }
	refuse := func(after time.Duration, id string, stranger bool, want string) {
		t.Helper()
		now = now.Add(after)
		a.finished(proxy.Finished{Stranger: stranger, Record: &exchange.Record{
			Facts: route.Facts{ID: id, API: "chat"}, Started: now, Ended: now, Result: exchange.Rejected, Status: 401,
			Failure: &exchange.Failure{Status: 401, Code: "evenkeel_invalid_api_key"},
		}})
		if got := taken(); got != want {
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
	Lines{b, true}.write(slog.LevelInfo, proxy.Finished{Record: &exchange.Record{
		Started: now, Ended: now.Add(587_803), Queued: 1_500 * time.Millisecond, Result: exchange.Complete,
		Attempts: []exchange.Attempt{{Outcome: route.Outcome{TTFT: 41_999_600}}},
	}})
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

// Whoever reads the log need not know that one of its lines has another writer. It quotes and escapes a little more
// than slog does; what is read is the same.
func TestLinesReadAsSlogs(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("", 3600))
	for _, odd := range []string{"", "plain-1.5/b", "two words", `a"b`, "a=b", `a\b`, "a\nb", "tab\t", "é", "\x00", "\xff\xfe", "<&>", "\u2028", "\x7f", "a,b:c;[d]{e}'f'"} {
		f := proxy.Finished{Record: &exchange.Record{
			Facts: route.Facts{ID: "id" + odd, API: "chat", Model: odd, Tenant: odd, Stream: true}, Started: now, Ended: now.Add(0),
			Result: exchange.Failed, Status: 502, Depth: 1, Model: odd,
			Attempts: []exchange.Attempt{{Deployment: odd, Outcome: route.Outcome{InputTokens: 7, OutputTokens: -1, Reported: true, Class: "reset", Detail: odd}}},
			Failure:  &exchange.Failure{Code: odd},
		}}
		for _, json := range []bool{false, true} {
			got, want := newLogBuffer(), newLogBuffer()
			Lines{got, json}.write(slog.LevelWarn, f)
			var h slog.Handler = slog.NewTextHandler(want, nil)
			if json {
				h = slog.NewJSONHandler(want, nil)
			}
			r := slog.NewRecord(f.Record.Ended, slog.LevelWarn, "exchange", 0)
			r.Add("id", "id"+odd, "api", "chat", "model", odd, "result", "failed", "status", 502, "duration_seconds", 0.0, "attempts", 1)
			if odd != "" {
				r.Add("key", odd)
			}
			r.Add("served_as", odd, "fallback_depth", 1, "deployment", odd, "stream", true, "input_tokens", 7, "output_tokens", -1,
				"usage_reported", true, "class", "reset", "detail", odd, "code", odd)
			if err := h.Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if !sameLine(t, json, got.text(), want.text()) {
				t.Errorf("json %v: got\n%swant\n%s", json, got.text(), want.text())
			}
		}
	}
}

func sameLine(t *testing.T, isJSON bool, got, want string) bool {
	if !isJSON {
		unquoted := regexp.MustCompile(`"(\\.|[^"\\])*"`)
		plain := func(line string) string {
			return unquoted.ReplaceAllStringFunc(line, func(q string) string {
				s, err := strconv.Unquote(q)
				if err != nil {
					t.Errorf("%s: %v", q, err)
				}
				return s
			})
		}
		return plain(got) == plain(want) && strings.HasSuffix(got, "\n") && strings.Count(got, "\n") == 1
	}
	var g, w map[string]any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil {
		return false
	}
	return reflect.DeepEqual(g, w)
}
