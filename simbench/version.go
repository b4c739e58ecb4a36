package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The folders whose code results follow from. That of the core counts as text for Evenkeel's own strategies. Other policies run through
// it too, and for them it counts by what they do in it, see conduct.go.
var (
	coreFolders = []string{
		"internal/engine", "internal/exchange", "internal/llm", "internal/prefix", "internal/quota", "internal/route", "internal/sim", "internal/sim/study", "internal/simd", "internal/trace",
	}
	kindFolders = map[kind][]string{
		ours:      append([]string{"internal/strategy"}, coreFolders...),
		peer:      {"internal/sim/peers"},
		reference: {"internal/sim/yardstick"},
		bound:     {"internal/sim/yardstick"},
	}
)

// version returns a hash of what makes results, for each kind of policy.
func (b *bench) version(ctx context.Context) (map[kind]string, error) {
	versions, err := codeVersions(b.options.root)
	if err != nil {
		return nil, err
	}
	does, err := conduct(ctx, b.options, b.policies)
	if err != nil {
		return nil, err
	}
	for k, d := range does {
		versions[k] = fmt.Sprintf("%x", sha256.Sum256([]byte(versions[k]+d)))[:12]
	}
	return versions, nil
}

// codeVersions returns a hash of the code for each kind of policy, as it is in the working tree.
func codeVersions(root string) (map[kind]string, error) {
	versions := map[kind]string{}
	for k, folders := range kindFolders {
		h := sha256.New()
		for _, folder := range folders {
			if err := hashFolder(h, filepath.Join(root, folder)); err != nil {
				return nil, fmt.Errorf("the code's version: %w; simbench runs at the root of the repository", err)
			}
		}
		if err := hashFile(h, filepath.Join(root, "simbench", "variants.go")); err != nil {
			return nil, err
		}
		versions[k] = fmt.Sprintf("%x", h.Sum(nil))[:12]
	}
	return versions, nil
}

// hashFolder adds the Go files of a folder that are no tests.
func hashFolder(h io.Writer, folder string) error {
	entries, err := os.ReadDir(folder) // in order of names
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			if err := hashFile(h, filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func hashFile(h io.Writer, name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(h, "%s %d\n%s", filepath.Base(name), len(text), text)
	return err
}
