package sim

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

const (
	mostLine   = 16 << 20 // bytes
	mostTokens = 1 << 24  // of a prompt or an answer: more is a mistake
	mostTime   = 10 * 365 * 24 * time.Hour
)

// mooncakeBlock is the tokens that one hash of a Mooncake trace stands for.
const mooncakeBlock = 512

// ReadMooncake reads a trace in the format of Mooncake (github.com/kvcache-ai/Mooncake): a JSON object per line, with timestamp
// in milliseconds, input_length and output_length in tokens, and hash_ids of blocks of 512 tokens, each of which stands for all
// before it too. Other members are ignored. An error names the file, the line and what was expected. The rows are kept in scratch, nil
// = in memory.
func ReadMooncake(r io.Reader, file string, scratch Scratch) (*Trace, error) {
	t := newTrace(mooncakeBlock, &store{scratch: scratch})
	err := t.read(r, file, func(line []byte) (at time.Duration, row Row, err error) {
		var m struct {
			Timestamp *float64 `json:"timestamp"`
			Input     *int     `json:"input_length"`
			Output    *int     `json:"output_length"`
			Hashes    []uint64 `json:"hash_ids"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return 0, row, fmt.Errorf(`expected a JSON object such as {"timestamp": 0, "input_length": 600, "output_length": 50, "hash_ids": [0, 1]}: %w`, err)
		}
		switch {
		case m.Timestamp == nil:
			return 0, row, errors.New("expected the member timestamp, in milliseconds")
		case m.Input == nil:
			return 0, row, errors.New("expected the member input_length, in tokens")
		case m.Output == nil:
			return 0, row, errors.New("expected the member output_length, in tokens")
		case !(*m.Timestamp >= 0 && *m.Timestamp <= float64(mostTime.Milliseconds())):
			return 0, row, fmt.Errorf("timestamp is %v, expected milliseconds from 0 to %d", *m.Timestamp, mostTime.Milliseconds())
		}
		row = Row{PromptTokens: *m.Input, OutputTokens: *m.Output, Blocks: m.Hashes}
		if want := (row.PromptTokens + mooncakeBlock - 1) / mooncakeBlock; len(m.Hashes) != want && row.plausible() == nil {
			return 0, row, fmt.Errorf("hash_ids has %d entries, expected %d for an input_length of %d: one for each %d tokens", len(m.Hashes), want, row.PromptTokens, mooncakeBlock)
		}
		return time.Duration(*m.Timestamp * float64(time.Millisecond)), row, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// azureHeader is the first line of an Azure trace.
const azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens"

// azureTimes are how it writes times: in 2023, and with a zone in 2024. Fractions of a second may have any number of digits.
var azureTimes = []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00"}

// azureMoment parses a time.
func azureMoment(text string) (t time.Time, err error) {
	for _, layout := range azureTimes {
		if t, err = time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return t, fmt.Errorf("TIMESTAMP is %.100q, expected a time such as 2023-11-16 18:15:46.6805900 or 2024-05-10 00:00:00.009930+00:00", text)
}

// ReadAzure reads a trace in the format of the Azure LLM inference traces (github.com/Azure/AzurePublicDataset): CSV with the columns
// TIMESTAMP, ContextTokens and GeneratedTokens. It says nothing of prefixes. An error names the file, the line and what was
// expected. The rows are kept in scratch, nil = in memory.
func ReadAzure(r io.Reader, file string, scratch Scratch) (*Trace, error) {
	t := newTrace(0, &store{scratch: scratch})
	headed := false
	var first time.Time
	err := t.read(r, file, func(line []byte) (at time.Duration, row Row, err error) {
		if !headed {
			headed = true
			if got := string(line); got != azureHeader {
				return 0, row, fmt.Errorf("the header is %.100q, expected %q", got, azureHeader)
			}
			return 0, row, errNoRow
		}
		columns := bytes.Split(line, []byte(","))
		if len(columns) != 3 {
			return 0, row, fmt.Errorf("%d columns, expected 3: %s", len(columns), azureHeader)
		}
		moment, err := azureMoment(string(columns[0]))
		if err != nil {
			return 0, row, err
		}
		if row.PromptTokens, err = strconv.Atoi(string(columns[1])); err != nil {
			return 0, row, fmt.Errorf("ContextTokens is %.100q, expected a whole number", columns[1])
		}
		if row.OutputTokens, err = strconv.Atoi(string(columns[2])); err != nil {
			return 0, row, fmt.Errorf("GeneratedTokens is %.100q, expected a whole number", columns[2])
		}
		if t.n == 0 {
			first = moment
		}
		if at = moment.Sub(first); at > mostTime {
			return 0, row, fmt.Errorf("TIMESTAMP is %.100q, expected at most %v after the first one", columns[0], mostTime)
		}
		return at, row, nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// errNoRow says that a line is no row.
var errNoRow = errors.New("no row")

// plausible checks the lengths of a row.
func (r *Row) plausible() error {
	switch {
	case r.PromptTokens < 1 || r.PromptTokens > mostTokens:
		return fmt.Errorf("a prompt of %d tokens, expected 1 to %d", r.PromptTokens, mostTokens)
	case r.OutputTokens < 1 || r.OutputTokens > mostTokens:
		return fmt.Errorf("an answer of %d tokens, expected 1 to %d", r.OutputTokens, mostTokens)
	}
	return nil
}

// read parses line by line, after the mark that some editors put at the beginning of a text. Times must not go back; the first is time 0.
func (t *Trace) read(r io.Reader, file string, parse func(line []byte) (time.Duration, Row, error)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostLine)
	n := 0
	wrong := func(err error) error { return fmt.Errorf("%s:%d: %w", file, n, err) }
	var from, last time.Duration
	for lines.Scan() {
		n++
		line := lines.Bytes()
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		at, row, err := parse(line)
		if errors.Is(err, errNoRow) {
			continue
		}
		if err == nil {
			err = row.plausible()
		}
		if err != nil {
			return wrong(err)
		}
		if t.n == 0 {
			from, last = at, at
		}
		if at < last {
			return wrong(fmt.Errorf("it is %v before the row above, expected rows in order of time", last-at))
		}
		last = at
		row.At = at - from
		if err := t.add(&row); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	n++
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return wrong(fmt.Errorf("a line of more than %d MiB, expected one request per line", mostLine>>20))
	case err != nil:
		return wrong(err)
	case t.n == 0:
		return fmt.Errorf("%s: it holds no request", file)
	}
	return nil
}
