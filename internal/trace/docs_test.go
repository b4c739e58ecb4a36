package trace

import (
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/trace.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// members lists what a line may hold, as JSON names it.
func members(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("json"))
	}
	return names
}

// Every member is a row of a table of the documentation, and nothing else is.
func TestDocumentation(t *testing.T) {
	_, format, _ := strings.Cut(document(t), "## Format")
	tables := strings.Split(format, "\n| member")[1:]
	if len(tables) != 3 {
		t.Fatalf("%d tables of members, want those of header, exchange and attempt", len(tables))
	}
	line := reflect.TypeFor[wire]()
	attempts, _ := line.FieldByName("Attempts")
	for i, want := range [][]string{{"evenkeel_trace", "program", "key", "block_bytes"}, members(line), members(attempts.Type.Elem())} {
		var got []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(tables[i], -1) {
			for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
				got = append(got, name[1])
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("table %d documents %v, there are %v", i+1, got, want)
		}
	}
}

// The lines of the documentation are a trace.
func TestDocumentationExamples(t *testing.T) {
	var lines strings.Builder
	for _, block := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(document(t), -1) {
		lines.WriteString(strings.ReplaceAll(strings.TrimSpace(block[1]), "\n", "") + "\n")
	}
	r := NewReader(strings.NewReader(lines.String()), "docs/trace.md")
	var e Entry
	if err := r.Next(&e); err != nil {
		t.Fatal(err)
	}
	if e.Prefix.Blocks != 31 || len(e.Prefix.Hashes) != 4 || len(e.Attempts) != 1 || e.Attempts[0].Cached == 0 {
		t.Errorf("%+v", e)
	}
	if err := r.Next(&e); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
