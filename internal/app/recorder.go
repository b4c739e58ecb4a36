package app

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"evenkeel/internal/config"
	"evenkeel/internal/ledger"
	"evenkeel/internal/llm"
)

// traceKey is where the key of a trace's hashes is kept.
func traceKey(c config.Trace) string { return c.Path + ".key" }

// recorder returns what records traffic, and the key that prompts are hashed with then; nil for both if it is not recorded. A
// trace that cannot be written is no reason not to serve.
func recorder(c config.Trace, o Options) (*ledger.Recorder, *llm.PrefixKey, error) {
	if c.Path == "" {
		return nil, nil, nil
	}
	open := ledger.OpenTraceKey
	if couldWrite(c.Path) != nil { // no key is left beside what can be no trace; the recorder tells why it is none
		open = ledger.ReadTraceKey
	}
	key, err := open(traceKey(c))
	if err != nil {
		key = ledger.NewTraceKey()
		o.Logger.Warn("the trace gets a key that is not kept: its prompts cannot be compared with those recorded before or after", "error", err)
	}
	r, err := ledger.NewRecorder(ledger.RecorderOptions{
		Path: c.Path, Limit: int64(c.MaxMiB) << 20, Key: key, Program: o.Version, Blocks: llm.PrefixBlock, Logger: o.Logger,
	})
	return r, llm.NewPrefixKey(key.Prefixes()), err
}

// untraceable returns the warning for a trace that this process could not write, and whether it is one. It changes nothing.
func untraceable(c *config.Config) (config.Warning, bool) {
	if c.Trace.Path == "" {
		return config.Warning{}, false
	}
	err := couldWrite(c.Trace.Path)
	if err == nil {
		if _, err = ledger.ReadTraceKey(traceKey(c.Trace)); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return c.TraceUnwritable(err), true
	}
	return config.Warning{}, false
}

// couldWrite returns why a file could not be written or made, nil if it could.
func couldWrite(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err == nil:
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return f.Close()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	dir := filepath.Dir(path)
	if info, err = os.Stat(dir); err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	return mayCreate(dir)
}
