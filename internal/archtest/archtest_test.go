package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestImportDirections(t *testing.T) {
	for _, p := range mustPackages(t) {
		for _, problem := range checkImports(mayImport, p.name, p.imports) {
			t.Error(problem)
		}
	}
}

func TestPureCore(t *testing.T) {
	fset := token.NewFileSet()
	var found []goPackage
	var imported []string
	for _, p := range mustPackages(t) {
		if slices.Contains(pure, p.name) {
			found = append(found, p)
			imported = append(imported, p.imports...)
		}
	}
	if len(found) == 0 {
		return
	}
	imports, err := stdImporter(fset, root, imported...)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		findings, err := checkPurity(fset, imports, module+"/internal/"+p.name, p.files)
		if err != nil {
			t.Errorf("package %s: %v", p.name, err)
		}
		for _, f := range findings {
			t.Errorf("package %s is pure: %v (see internal/archtest/table.go)", p.name, f)
		}
	}
}

func TestCheckImports(t *testing.T) {
	table := map[string][]string{"cmd/evenkeel": {"cli"}, "low": {}, "high": {"low"}}
	f := func(name, imports, want string) {
		t.Helper()
		got := strings.Join(checkImports(table, name, strings.Fields(imports)), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s importing %q: got %q, want %q", name, imports, got, want)
		}
	}
	f("low", "fmt time example.com/evenkeel/internal/high", "")
	f("high", "evenkeel/internal/low", "")
	f("cmd/evenkeel", "evenkeel/internal/cli", "")
	f("low", "evenkeel/internal/high", "package low may import [] of ours, not high")
	f("high", "evenkeel/internal/low evenkeel/internal/low/sub", "may import [low] of ours, not low/sub")
	f("high", "evenkeel/bench", "imports evenkeel/bench, which is not below internal/")
	f("new", "", "add it to mayImport")
	f("cmd/evenkeel", "evenkeel/internal/low", "may import [cli] of ours, not low")
}

// The table must name only packages it has a row for, pure packages must be in it, and there must be no way round in a circle.
func TestTable(t *testing.T) {
	for _, name := range pure {
		if _, ok := mayImport[name]; !ok {
			t.Errorf("pure package %s has no row in mayImport", name)
		}
	}
	var visit func(name string, path []string)
	visit = func(name string, path []string) {
		if slices.Contains(path, name) {
			t.Fatalf("mayImport has a cycle: %s", strings.Join(append(path, name), " -> "))
		}
		row, ok := mayImport[name]
		if !ok {
			t.Fatalf("mayImport names %s, which has no row", strings.Join(append(path, name), " -> "))
		}
		for _, next := range row {
			visit(next, append(path, name))
		}
	}
	for name := range mayImport {
		visit(name, nil)
	}
}

// What serves traffic knows nothing of the simulator, least of all of other routers' policies.
func TestServingNamesNoSimulator(t *testing.T) {
	var visit func(name string)
	seen := map[string]bool{}
	visit = func(name string) {
		if !seen[name] {
			seen[name] = true
			for _, next := range mayImport[name] {
				visit(next)
			}
		}
	}
	visit("app")
	for name := range seen {
		if name == "sim" || strings.HasPrefix(name, "sim/") {
			t.Errorf("by the table, app may come to import %s", name)
		}
	}
}

// Every line of the fixtures is found if it says "want", with the text it names, and passes if it does not.
func TestPurityFindsEveryBreach(t *testing.T) {
	fset := token.NewFileSet()
	files, err := filepath.Glob("testdata/purity/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	type line struct {
		file string
		line int
	}
	want := map[line][]string{}
	imported := map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			imported[strings.Trim(spec.Path.Value, `"`)] = true
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if text, ok := strings.CutPrefix(comment.Text, "// want "); ok {
					pos := fset.Position(comment.Pos())
					want[line{pos.Filename, pos.Line}] = strings.Split(text, " | ")
				}
			}
		}
	}
	got := map[line][]string{}
	for _, f := range fixtureFindings(t, fset, files, imported) {
		at := line{f.pos.Filename, f.pos.Line}
		got[at] = append(got[at], f.text)
	}
	for at, texts := range want {
		if len(got[at]) != len(texts) {
			t.Errorf("%s:%d: got %q, want %q", at.file, at.line, got[at], texts)
			continue
		}
		for i, text := range texts {
			if !strings.Contains(got[at][i]+"\n", text+"\n") && !strings.HasPrefix(got[at][i], text) {
				t.Errorf("%s:%d: got %q, want %q", at.file, at.line, got[at][i], text)
			}
		}
	}
	for at, texts := range got {
		if want[at] == nil {
			t.Errorf("%s:%d: got %q on a line that breaks no rule", at.file, at.line, texts)
		}
	}
}

func fixtureFindings(t *testing.T, fset *token.FileSet, files []string, imported map[string]bool) []finding {
	t.Helper()
	const ours = module + "/internal/config"
	delete(imported, ours)
	paths := []string{}
	for path := range imported {
		paths = append(paths, path)
	}
	std, err := stdImporter(fset, root, paths...)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(fset, "testdata/config/config.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: std}
	config, err := conf.Check(ours, fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	findings, err := checkPurity(fset, withPackage{std, config}, "fixture", files)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// withPackage answers with one more package than the importer it wraps.
type withPackage struct {
	types.Importer
	extra *types.Package
}

func (w withPackage) Import(path string) (*types.Package, error) {
	if path == w.extra.Path() {
		return w.extra, nil
	}
	return w.Importer.Import(path)
}

func TestPackagesReadsFilesOfEveryPlatform(t *testing.T) {
	found, err := packages("testdata/tree")
	if err != nil {
		t.Fatal(err)
	}
	want := []goPackage{
		{name: "cmd/evenkeel", files: []string{"testdata/tree/cmd/evenkeel/main.go"}, imports: []string{"evenkeel/internal/cli"}},
		{name: "cli", files: []string{"testdata/tree/internal/cli/a.go", "testdata/tree/internal/cli/a_windows.go"}, imports: []string{"fmt", "os", "syscall"}},
		{name: "cli/sub", files: []string{"testdata/tree/internal/cli/sub/sub.go"}, imports: []string{"C"}},
	}
	slices.SortFunc(want, func(a, b goPackage) int { return strings.Compare(a.name, b.name) })
	if !reflect.DeepEqual(found, want) {
		t.Errorf("got  %v\nwant %v", found, want)
	}
}

func mustPackages(t *testing.T) []goPackage {
	t.Helper()
	found, err := packages(root)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(found, func(p goPackage) bool { return p.name == "archtest" }) {
		t.Fatalf("this package is not among the %d found below %s: the test looks in the wrong place", len(found), root)
	}
	return found
}
