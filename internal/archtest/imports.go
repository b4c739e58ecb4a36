package archtest

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// goPackage is a folder with Go files. Test files are left out; files for other platforms are in.
type goPackage struct {
	name    string   // as in the table: "route", "cmd/evenkeel"
	files   []string // paths of its files
	imports []string // sorted, each once
}

// packages finds the packages below internal/ and cmd/ of the module at root. It reads the files itself instead of asking the go command, so that
// the go command knows what the test depends on and never answers with a stale cached result.
func packages(root string) ([]goPackage, error) {
	byName := map[string]*goPackage{}
	for _, top := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist) && entry == nil:
				return fs.SkipDir // no folder top yet
			case err != nil:
				return err
			case entry.IsDir() && skipDir(entry.Name()):
				return fs.SkipDir
			case entry.IsDir() || !isSource(entry.Name()):
				return nil
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			name := strings.TrimPrefix(filepath.ToSlash(dir), "internal/")
			if byName[name] == nil {
				byName[name] = &goPackage{name: name}
			}
			return byName[name].add(path)
		})
		if err != nil {
			return nil, err
		}
	}
	var all []goPackage
	for _, p := range byName {
		slices.Sort(p.imports)
		p.imports = slices.Compact(p.imports)
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b goPackage) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// The go command passes over these folders as well.
func skipDir(name string) bool {
	return name == "testdata" || strings.HasPrefix(name, "_") || strings.HasPrefix(name, ".")
}

func isSource(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "_") && !strings.HasPrefix(name, ".")
}

func (p *goPackage) add(path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	p.files = append(p.files, path)
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", path, spec.Path.Value, err)
		}
		p.imports = append(p.imports, imported)
	}
	return nil
}

// checkImports says what is wrong with the imports of one package, by the table; nothing if all is well.
func checkImports(table map[string][]string, name string, imports []string) []string {
	row, ok := table[name]
	if !ok {
		return []string{fmt.Sprintf("package %s is not in the import table: add it to mayImport in internal/archtest/table.go with what it may import", name)}
	}
	var problems []string
	for _, imported := range imports {
		inModule, ours := strings.CutPrefix(imported, module+"/")
		if !ours {
			continue
		}
		inInternal, internal := strings.CutPrefix(inModule, "internal/")
		if !internal {
			problems = append(problems, fmt.Sprintf("package %s imports %s, which is not below internal/", name, imported))
		} else if !slices.Contains(row, inInternal) {
			problems = append(problems, fmt.Sprintf("package %s may import [%s] of ours, not %s (mayImport in internal/archtest/table.go)",
				name, strings.Join(row, " "), inInternal))
		}
	}
	return problems
}
