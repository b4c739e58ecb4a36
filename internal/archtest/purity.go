package archtest

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// stdImporter returns an importer for the given packages and all they depend on, from the export data of the go command's build cache.
// root is the folder where the go command runs.
func stdImporter(fset *token.FileSet, root string, paths ...string) (types.Importer, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}", "--"}, paths...)...)
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s does not build, or is not imported by what was asked for", path)
		}
		return os.Open(exports[path])
	}), nil
}

// finding is one breach of purity.
type finding struct {
	pos  token.Position
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s: %s", f.pos, f.text) }

// purity looks for what pure code must not do. Identifiers are judged by the object they stand for, so import aliases, dot imports, method values
// and shadowed names make no difference.
type purity struct {
	fset     *token.FileSet
	pkg      *types.Package
	info     *types.Info
	findings []finding
}

// checkPurity type-checks the files as the package path and returns what makes it impure, in the order of the source.
func checkPurity(fset *token.FileSet, imports types.Importer, path string, files []string) ([]finding, error) {
	c := purity{fset: fset, info: &types.Info{Uses: map[*ast.Ident]types.Object{}}}
	var parsed []*ast.File
	for _, name := range files {
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if match, err := build.Default.MatchFile(filepath.Split(name)); err != nil {
			return nil, err
		} else if !match {
			c.report(file.Package, "a file for some platforms only: pure code is the same everywhere")
			continue
		}
		parsed = append(parsed, file)
	}
	var err error
	conf := types.Config{Importer: imports}
	if c.pkg, err = conf.Check(path, fset, parsed, c.info); err != nil {
		return nil, err
	}
	for _, file := range parsed {
		ast.Inspect(file, c.visit)
	}
	return c.findings, nil
}

func (c *purity) report(pos token.Pos, format string, args ...any) {
	c.findings = append(c.findings, finding{c.fset.Position(pos), fmt.Sprintf(format, args...)})
}

func (c *purity) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		path := strings.Trim(n.Path.Value, "\"`")
		if _, ok := allowed[path]; !ok && !isOurs(path) {
			c.report(n.Pos(), "import of %s, which is not on the list of what pure code may import", path)
		}
	case *ast.GoStmt:
		c.report(n.Pos(), "a go statement: pure code starts no goroutine")
	case *ast.FuncDecl:
		if n.Body == nil {
			c.report(n.Pos(), "function %s has no body: its code is hidden from this check", n.Name.Name)
		}
	case *ast.Ident:
		if obj := c.info.Uses[n]; obj != nil && !c.permitted(obj) {
			c.report(n.Pos(), "use of %s", describe(obj))
		}
	}
	return true
}

func (c *purity) permitted(obj types.Object) bool {
	if _, isPackageName := obj.(*types.PkgName); isPackageName {
		return true // the import has been judged
	}
	if obj.Pkg() == nil {
		_, builtin := obj.(*types.Builtin)
		return !builtin || obj.Name() != "print" && obj.Name() != "println"
	}
	path := obj.Pkg().Path()
	if path == c.pkg.Path() {
		return true
	}
	if isOurs(path) {
		return isPure(path) || harmless(obj)
	}
	rule, ok := allowed[path]
	return ok && rule.permits(owner(obj), obj.Name())
}

func (u use) permits(owner, name string) bool {
	if owner == "" {
		owner = name
	}
	method := owner + "." + name
	if u.only != nil && !slices.Contains(u.only, owner) && !slices.Contains(u.only, method) {
		return false
	}
	return !slices.Contains(u.not, owner) && !slices.Contains(u.not, method)
}

func isOurs(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func isPure(path string) bool {
	name := strings.TrimPrefix(path, module+"/internal/")
	return slices.Contains(pure, name) || slices.Contains(alike, name)
}

// harmless tells whether pure code may use obj although its package is not pure: types, their fields and methods, and constants, but no functions and
// no variables, which could hand on a clock.
func harmless(obj types.Object) bool {
	switch obj := obj.(type) {
	case *types.Func:
		return obj.Signature().Recv() != nil
	case *types.Var:
		return obj.IsField()
	}
	return true
}

// owner is the name of the type whose method obj is, or "".
func owner(obj types.Object) string {
	f, ok := obj.(*types.Func)
	if !ok || f.Signature().Recv() == nil {
		return ""
	}
	t := f.Signature().Recv().Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name()
	}
	return ""
}

func describe(obj types.Object) string {
	name := obj.Name()
	if o := owner(obj); o != "" {
		name = o + "." + name
	}
	if obj.Pkg() != nil {
		name = obj.Pkg().Path() + "." + name
	}
	return name
}
