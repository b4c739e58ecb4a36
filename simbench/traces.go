package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"evenkeel/internal/sim"
	"evenkeel/internal/sim/study"
)

// traces holds the public traces by the name of their file.
type traces map[string]traceFile

// traceFile is a trace. Rows play its first half, and those that are kept for the end the second one.
type traceFile struct {
	whole, first, second tracePart
	excerpt              bool
}

// tracePart is what a row plays of a trace.
type tracePart struct {
	trace  *sim.Trace
	digest string
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
		f := traceFile{excerpt: excerpt}
		if f.whole, err = readPart(w, text, file); err != nil {
			return nil, err
		}
		first, second := halves(text, filepath.Ext(file) == ".csv")
		if f.first, err = readPart(w, first, file); err != nil {
			return nil, err
		}
		if f.second, err = readPart(w, second, file); err != nil {
			return nil, err
		}
		t[w.File] = f
	}
	return t, nil
}

func readPart(w study.Workload, text []byte, file string) (tracePart, error) {
	err := w.Read(bytes.NewReader(text), file)
	return tracePart{w.Trace, fmt.Sprintf("%x", sha256.Sum256(text))}, err
}

// halves cuts the lines of a trace in two; both have the header, if there is one.
func halves(text []byte, headed bool) (first, second []byte) {
	lines := slices.Collect(bytes.Lines(text))
	var header [][]byte
	if headed && len(lines) > 0 {
		header, lines = lines[:1], lines[1:]
	}
	n := (len(lines) + 1) / 2
	return bytes.Join(slices.Concat(header, lines[:n]), nil), bytes.Join(slices.Concat(header, lines[n:]), nil)
}

// of returns what a row plays; nothing if its workload is made up, or its trace is not there.
func (t traces) of(s *spec) tracePart {
	w, err := study.Find(s.Workload)
	if err != nil {
		panic("BUG: simbench: " + err.Error())
	}
	f := t[w.File]
	switch {
	case s.Variant == whole:
		return f.whole
	case s.Holdout:
		return f.second
	}
	return f.first
}

// has reports whether a row can be played.
func (t traces) has(s *spec) bool {
	w, err := study.Find(s.Workload)
	return err == nil && (w.File == "" || t.of(s).trace != nil)
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
