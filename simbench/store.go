package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
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
	in := bufio.NewReader(s.file)
	var size int64
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what is left has no end
			break
		}
		if err != nil {
			return err
		}
		var r result
		if err := json.Unmarshal(bytes.TrimSpace(line), &r); err != nil || r.Key == "" || r.Outcome == nil {
			return fmt.Errorf("%s:%d: expected a result as simbench writes it (%v): delete the file, or the line", name, n, err)
		}
		s.known[r.Key] = &r
		size += int64(len(line))
	}
	if err := s.file.Truncate(size); err != nil {
		return err
	}
	_, err := s.file.Seek(size, io.SeekStart)
	return err
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

func (s *store) close() error { return s.file.Close() }
