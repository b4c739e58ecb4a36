package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// traces holds the public traces by the name of their file.
type traces map[string]traceFile

type traceFile struct {
	trace   *sim.Trace
	digest  string
	excerpt bool
}

// excerpts are in the repository.
var excerpts = map[string]string{
	"mooncake_conversation_trace.jsonl": "mooncake_conversation_300.jsonl",
	"mooncake_synthetic_trace.jsonl":    "",
	"AzureLLMInferenceTrace_code.csv":   "azure_code_300.csv",
	"AzureLLMInferenceTrace_conv.csv":   "azure_conv_300.csv",
}

// readTraces reads those of all workloads from the folder that was named, else the excerpts.
func readTraces(o options) (traces, error) {
	t := traces{}
	for _, w := range study.Workloads() {
		if w.File == "" {
			continue
		}
		file, excerpt := filepath.Join(o.traces, w.File), o.traces == ""
		if excerpt {
			name := excerpts[w.File]
			if name == "" {
				continue // there is none: its rows are left out
			}
			file = filepath.Join(o.root, "internal", "sim", "testdata", name)
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: --traces names the folder with the public traces under the names of their files, such as %s", err, w.File)
		}
		if err != nil {
			return nil, err
		}
		if err := w.Read(bytes.NewReader(text), file); err != nil {
			return nil, err
		}
		t[w.File] = traceFile{w.Trace, fmt.Sprintf("%x", sha256.Sum256(text)), excerpt}
	}
	return t, nil
}

// has reports whether a row can be played.
func (t traces) has(s *spec) bool {
	w, err := study.Find(s.Workload)
	return err == nil && (w.File == "" || t[w.File].trace != nil)
}

// excerpts reports whether any trace is only an excerpt.
func (t traces) excerpts() bool {
	for _, f := range t {
		if f.excerpt {
			return true
		}
	}
	return false
}
