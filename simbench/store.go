package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"evenkeel/internal/sim/study"
)

// result is a line of the file of results.
type result struct {
	Key     string         `json:"key"`
	Row     string         `json:"row"`     // for people
	Version string         `json:"version"` // of the code, for people
	Load    load           `json:"load"`
	Outcome *study.Outcome `json:"outcome"`
	Played  int            `json:"played"`  // requests, with those of the burn-in
	Seconds float64        `json:"seconds"` // of a processor that it took to play
}

// load says how busy the row was.
type load struct {
	Rho     float64 `json:"rho"`    // with a cache that forgets nothing
	NoCache float64 `json:"rho_nc"` // without any
	Hits    float64 `json:"hits"`   // share of a cache that forgets nothing
	Rate    float64 `json:"rate"`   // requests per second
	Span    float64 `json:"span"`   // seconds
}

// cell is what a result follows from.
type cell struct {
	Spec     *spec
	Requests int // 0 = the whole trace
	Seed     uint64
	Trace    string // digest
	Policy   string
	Version  string // of the code
}

// key names the cell's result.
func (c *cell) key() string {
	text, err := json.Marshal(c)
	if err != nil {
		panic("BUG: simbench: " + err.Error())
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:24]
}

// store is the file of results. It is safe for concurrent use.
type store struct {
	mu    sync.Mutex
	file  *os.File
	known map[string]*result
}

// openStore reads what is there. A last line that is cut off, by a crash or a full disk, is dropped.
func openStore(name string) (*store, error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	s := &store{file: f, known: map[string]*result{}}
	if err := s.read(name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *store) read(name string) error {
	var size int64
	err := lines(s.file, name, func(r *result, length int) {
		s.known[r.Key] = r
		size += int64(length)
	})
	if err != nil {
		return err
	}
	return s.file.Truncate(size)
}

// lines tells of each result and of the length of its line. What has no end is none.
func lines(from io.Reader, name string, tell func(r *result, length int)) error {
	in := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
		var r result
		if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil || r.Key == "" || r.Outcome == nil {
			return fmt.Errorf("%s:%d: expected a result as simbench writes it (%v): delete the file, or the line", name, n, err)
		}
		tell(&r, len(line))
	}
}

func (s *store) get(key string) *result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

func (s *store) put(r *result) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[r.Key] = r
	_, err = s.file.Write(append(line, '\n'))
	return err
}

// unpack adds the results of a compressed file, if it is there, to those that are known.
func (s *store) unpack(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return lines(in, name, func(r *result, _ int) {
		if s.known[r.Key] == nil {
			s.known[r.Key] = r
		}
	})
}

// pack writes what is known of these versions of the code to a compressed file: equal results give equal files.
func (s *store) pack(name string, versions map[kind]string) error {
	if name == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current := slices.Collect(maps.Values(versions))
	var results []*result
	for _, r := range s.known {
		if slices.Contains(current, r.Version) {
			results = append(results, r)
		}
	}
	slices.SortFunc(results, func(x, y *result) int {
		return cmp.Or(cmp.Compare(x.Row, y.Row), cmp.Compare(x.Outcome.Policy, y.Outcome.Policy), cmp.Compare(x.Key, y.Key)) // alike lines compress well
	})
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	each := json.NewEncoder(out)
	for _, r := range results {
		if err := each.Encode(r); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, packed.Bytes(), 0o644)
}

func (s *store) close() error { return s.file.Close() }
