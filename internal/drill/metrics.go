package drill

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// sample is what a balancer says of itself at one time.
type sample struct {
	series []series
}

// series is one line of the exposition.
type series struct {
	name   string
	labels string // as written, with braces
	value  float64
}

// sample reads the metrics; it ends the row if it cannot.
func (x *balancer) sample() *sample {
	s, err := x.metrics()
	x.b.must(err)
	return s
}

func (x *balancer) metrics() (*sample, error) {
	status, body, err := x.get(x.admin + "/metrics")
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("metrics: status %d", status)
	}
	return parseMetrics(string(body)), nil
}

// parseMetrics reads Prometheus's text format; lines that are none are passed over.
func parseMetrics(text string) *sample {
	s := &sample{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		end := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' || end < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(line[:end], "{")
		s.series = append(s.series, series{name, labels, value})
	}
	return s
}

// sum adds up the series of a name whose labels hold all of the texts, such as `result="cut"`.
func (s *sample) sum(name string, labels ...string) (total float64) {
next:
	for i := range s.series {
		if s.series[i].name != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(s.series[i].labels, l) {
				continue next
			}
		}
		total += s.series[i].value
	}
	return total
}

func (s *sample) goroutines() float64 { return s.sum("go_goroutines") }
func (s *sample) files() float64      { return s.sum("process_open_fds") }
func (s *sample) cpu() float64        { return s.sum("process_cpu_seconds_total") }
func (s *sample) requests() float64   { return s.sum("evenkeel_requests_total") }
func (s *sample) inFlight() float64   { return s.sum("evenkeel_in_flight") }
func (s *sample) waiting() float64    { return s.sum("evenkeel_queue_depth") }

// worked counts the attempts that an engine had to work for: a refused or stale connection cost it nothing.
func (s *sample) worked() float64 {
	return s.sum("evenkeel_attempts_total") - s.sum("evenkeel_attempts_total", `class="connect"`) - s.sum("evenkeel_attempts_total", `class="stale"`)
}

const mib = 1 << 20

// resident is the memory that the balancer has in use, in bytes. It is read without asking it, which would make it use more.
func (x *balancer) resident() float64 {
	if n, err := processMemory(x.cmd.Process.Pid); err == nil {
		return n
	}
	if s, err := x.metrics(); err == nil {
		return s.sum("process_resident_memory_bytes")
	}
	return 0
}
