package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestReadTree(t *testing.T) {
	got, err := ReadTree(File{"a.yaml", []byte("a: &x {b: 1}\nc: [*x, ~, 'null']\nd: {<<: *x, e: ${F}}\na: 2\n")})
	if err != nil {
		t.Fatal(err)
	}
	text := func(line, col int, s string) Tree { return Tree{Line: line, Column: col, Kind: TreeText, Text: s} }
	inner := []TreeEntry{{"b", 1, 8, text(1, 11, "1")}}
	want := Tree{Line: 1, Column: 1, Kind: TreeMap, Entries: []TreeEntry{
		{"a", 1, 1, Tree{Line: 1, Column: 4, Kind: TreeMap, Entries: inner}},
		{"c", 2, 1, Tree{Line: 2, Column: 4, Kind: TreeList, Items: []Tree{
			{Line: 2, Column: 5, Kind: TreeMap, Entries: inner}, {Line: 2, Column: 9}, text(2, 12, "null"),
		}}},
		{"d", 3, 1, Tree{Line: 3, Column: 4, Kind: TreeMap, Entries: []TreeEntry{{"e", 3, 13, text(3, 16, "${F}")}, {"b", 1, 8, text(1, 11, "1")}}}},
		{"a", 4, 1, text(4, 4, "2")},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if empty, err := ReadTree(File{"a.yaml", nil}); err != nil || empty.Kind != TreeNull {
		t.Errorf("an empty file gives %+v and %v", empty, err)
	}
}

// TestReadTreeRefuses lists what has its bounds, and mistakes of form, with their places.
func TestReadTreeRefuses(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if _, err := ReadTree(File{"a.yaml", []byte(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q gives %v, want %q", text, err, want)
		}
	}
	f("a: [", "is a bracket left open?")
	f("a: b\n c: d", "a.yaml:2:")
	f("a: b\n---\nc: d", "holds a second document")
	f("\ta: b", "a tab indents this line")
	f("a: !!python/object b", "a YAML tag (!...) is not supported")
	f("? [a]: b", "a key must be text")
	f("a: &a [*a]", "nested deeper than 64 levels")
	f(strings.Repeat("[", 1000), "a.yaml:")
	f("a: &a x\nb:\n"+strings.Repeat("- *a\n", maxAliases+1), "holds more than 10000 aliases")
	f("a: "+strings.Repeat("x", maxFile), "is larger than 4 MiB")
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		before := "*a" + string(rune('a'+i-2)) + ", "
		if i == 1 {
			before = "*a0, "
		}
		bomb.WriteString("k" + string(rune('a'+i)) + ": &a" + string(rune('a'+i-1)) + " [" + strings.Repeat(before, 9) + "]\n")
	}
	f(bomb.String(), "too many values after following aliases")
}
