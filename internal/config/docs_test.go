package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var docRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| ([^|]+) \\| ")

// TestDocumentation compares the keys and defaults of docs/configuration.md with the schema.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]reflect.Value{}
	walkSchema(reflect.ValueOf(document{Config: Default()}), "", schema)
	var documented []string
	for _, row := range docRow.FindAllStringSubmatch(string(data), -1) {
		key, written := row[1], strings.TrimSpace(row[2])
		documented = append(documented, key)
		v, known := schema[key]
		if !known {
			t.Errorf("%s is documented and does not exist", key)
			continue
		}
		checkDefault(t, key, written, v)
	}
	for key := range schema {
		if !slices.Contains(documented, key) {
			t.Errorf("%s is not documented", key)
		}
	}
	for _, kind := range Kinds {
		if !strings.Contains(string(data), "`"+kind+"`") {
			t.Errorf("kind %s is not documented", kind)
		}
	}
}

// TestDocumentationExamples loads every example of the documentation that stands alone.
func TestDocumentationExamples(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	from := sources{env: anyEnv, read: func(_, name string) (string, error) { return "sk-of-" + name, nil }}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	if len(blocks) < 8 {
		t.Fatalf("found %d examples", len(blocks))
	}
	for _, block := range blocks {
		files := []File{{"example.yaml", []byte(block[1])}}
		if strings.Contains(block[1], "name: azure") { // its endpoints are in another file
			files = append(files, File{"endpoints.yaml", []byte("endpoints: {openai: {kind: openai}, azure: {url: http://azure}}")})
		}
		if _, _, err := load(files, from); err != nil {
			t.Errorf("%s\n%s", block[1], err)
		}
	}
}

// walkSchema lists the keys below v as the documentation writes them, with their default values.
func walkSchema(v reflect.Value, prefix string, into map[string]reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		key, field := prefix+f.names[0], v.FieldByIndex(f.index)
		into[key] = field
		switch {
		case field.Type() == typeSecret || field.Type() == typeStrategy:
		case field.Kind() == reflect.Struct:
			walkSchema(field, key+".", into)
		case field.Kind() == reflect.Pointer && field.Type().Elem() != typeStrategy:
			walkSchema(newElement(field.Type().Elem()), key+".", into)
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct:
			below := key + "[]."
			if f.named {
				below = key + ".NAME."
			}
			walkSchema(newElement(field.Type().Elem()), below, into)
		}
	}
}

// checkDefault compares the default that is written in the documentation with the value v.
func checkDefault(t *testing.T, key, written string, v reflect.Value) {
	t.Helper()
	text, isValue := strings.CutPrefix(written, "`")
	text = strings.TrimSuffix(text, "`")
	if key == "models.NAME.strategy" || v.Kind() == reflect.Struct && !isValue {
		return // a reference to another setting; a section
	}
	if !isValue {
		if !v.IsZero() {
			t.Errorf("%s: the default is %v, documented as %s", key, v, written)
		}
		return
	}
	got := reflect.New(v.Type()).Elem()
	if v.Type() == typeStrategy {
		got.Set(reflect.ValueOf(Strategy{Name: text}))
	} else {
		newDecoder(sources{}).value(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}, got, field{}, nil, 0)
	}
	if !reflect.DeepEqual(got.Interface(), v.Interface()) {
		t.Errorf("%s: the default is %v, documented as %s", key, v, written)
	}
}
