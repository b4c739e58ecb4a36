package study

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"evenkeel/internal/sim"
)

// Workload is traffic that has a name.
type Workload struct {
	Name    string
	Summary string   // one line for people
	File    string   // of the public trace that it plays; "" = it is made up
	Goal    sim.Goal // what an answer must keep to count for goodput
	// Reuse says that prompts have prefixes in common.
	Reuse bool

	// Trace is what is played. It is set by whoever has read File.
	Trace *sim.Trace
	// Spread is for traces whose times are rounded (sim.ReplayOptions).
	Spread bool
	// Generate makes traffic of about so many requests per second instead.
	Generate func(seed uint64, rate float64) (sim.Source, error)
}

// goals of people who wait: the first token within two seconds, and tokens as fast as one reads.
var chatGoal = sim.Goal{TTFT: 2 * time.Second, ITL: 100 * time.Millisecond}

// longGoal is for prompts that alone take seconds: the longest of the Mooncake traces take 10 on some of the engines.
var longGoal = sim.Goal{TTFT: 10 * time.Second, ITL: 100 * time.Millisecond}

var workloads = []Workload{
	{Name: "mooncake-conversation", Summary: "chats with long prompts, an hour of Kimi (2024)", File: "mooncake_conversation_trace.jsonl", Goal: longGoal, Reuse: true, Spread: true},
	{Name: "mooncake-synthetic", Summary: "long documents and tools, made by the authors of Mooncake from public data sets", File: "mooncake_synthetic_trace.jsonl", Goal: longGoal, Reuse: true, Spread: true},
	{Name: "azure-code", Summary: "code completion in violent bursts, an hour of Azure (2023); no prefixes are known", File: "AzureLLMInferenceTrace_code.csv", Goal: chatGoal},
	{Name: "azure-conversation", Summary: "chats, an hour of Azure (2023); no prefixes are known", File: "AzureLLMInferenceTrace_conv.csv", Goal: chatGoal},
	{Name: "multi-turn", Summary: "conversations of 6 turns under one of 200 system prompts", Goal: chatGoal, Reuse: true, Generate: multiTurn},
	{Name: "reasoning", Summary: "short questions and answers of 2,000 tokens that vary much", Goal: chatGoal, Generate: reasoning},
	{Name: "bursty", Summary: "the lengths of azure-code, gaps of a coefficient of variation of 13", Goal: chatGoal, Generate: bursty},
	{Name: "tenant-flood", Summary: "conversations, and one tenant who sends four fifths of all requests from a script", Goal: chatGoal, Reuse: true, Generate: tenantFlood},
}

// Workloads returns all that have a name, those that need a trace without it.
func Workloads() []Workload { return slices.Clone(workloads) }

// Find returns the workload of a name. The error lists the names.
func Find(name string) (Workload, error) {
	var names []string
	for _, w := range workloads {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("unknown workload %q: there are %s", name, strings.Join(names, ", "))
}

// Read takes the workload's trace, in the format of its public file: Azure's if that is CSV, else Mooncake's. Errors name file as
// where it comes from.
func (w *Workload) Read(r io.Reader, file string) (err error) {
	read := sim.ReadMooncake
	if path.Ext(w.File) == ".csv" {
		read = sim.ReadAzure
	}
	w.Trace, err = read(r, file, nil)
	return err
}

// turnsPerSession is the mean number of turns of the conversations that are made up.
const turnsPerSession = 6

// conversations are like those with an assistant that has instructions and reads documents: prompts of 10,000 tokens in the mean, of
// which seven eighths were there in the turn before or in another session's system prompt.
func conversations(rate float64) sim.SessionOptions {
	return sim.SessionOptions{
		Rate: rate / turnsPerSession, Turns: sim.Law{Mean: turnsPerSession, CV: 0.8}, Systems: 200, Zipf: 1, System: sim.Law{Mean: 3000, CV: 0.8},
		Question: sim.Law{Mean: 1200, CV: 1.5}, Answer: sim.Law{Mean: 300, CV: 0.5}, Gap: sim.Law{Mean: 20, CV: 1}, Block: 64,
	}
}

func multiTurn(seed uint64, rate float64) (sim.Source, error) {
	return chats(seed, conversations(rate))
}

// chats brings conversations as if they had been going on for a while: at first there would be none, and then more and more.
func chats(seed uint64, o sim.SessionOptions) (sim.Source, error) {
	s, err := sim.NewSessions(seed, o)
	if err != nil {
		return nil, err
	}
	return &late{Source: s, by: time.Duration(3 * o.Turns.Mean * o.Gap.Mean * float64(time.Second))}, nil
}

// late is a source without its beginning.
type late struct {
	sim.Source
	by time.Duration
}

func (l *late) Next(r *sim.Request) bool {
	for l.Source.Next(r) {
		if r.At >= l.by {
			r.At -= l.by
			return true
		}
	}
	return false
}

func reasoning(seed uint64, rate float64) (sim.Source, error) {
	return sim.NewPoisson(seed, sim.PoissonOptions{Rate: rate, Prompt: sim.Law{Mean: 800, CV: 1.5}, Output: sim.Law{Mean: 2000, CV: 0.8}})
}

func bursty(seed uint64, rate float64) (sim.Source, error) {
	return sim.NewPoisson(seed, sim.PoissonOptions{Rate: rate, CV: 13, Prompt: sim.Law{Mean: 2048, CV: 0.9}, Output: sim.Law{Mean: 28, CV: 1.6}})
}

// tenantFlood lays a script's requests, which share a prompt of instructions, over conversations.
func tenantFlood(seed uint64, rate float64) (sim.Source, error) {
	people, err := chats(seed, conversations(rate/5))
	if err != nil {
		return nil, err
	}
	o := conversations(rate * 4 / 5)
	o.Rate, o.Turns, o.Systems, o.Zipf = rate*4/5, sim.Law{Mean: 1}, 3, 0
	o.Question, o.Answer = sim.Law{Mean: 1500, CV: 0.5}, sim.Law{Mean: 50, CV: 0.5}
	script, err := chats(seed+floodSeed, o)
	if err != nil {
		return nil, err
	}
	return merge(named{people, "people"}, named{script, "script"}), nil
}

// floodSeed sets the script's random numbers apart from those of the people.
const floodSeed = 1 << 40

// named is a source whose requests belong to one tenant.
type named struct {
	sim.Source
	tenant string
}

func (n named) Next(r *sim.Request) bool {
	ok := n.Source.Next(r)
	r.Tenant = n.tenant
	return ok
}

// merged brings the requests of several sources in order.
type merged struct {
	sources []sim.Source
	heads   []sim.Request
	ok      []bool
}

func merge(sources ...sim.Source) *merged {
	m := &merged{sources: sources, heads: make([]sim.Request, len(sources)), ok: make([]bool, len(sources))}
	for i, s := range sources {
		m.ok[i] = s.Next(&m.heads[i])
	}
	return m
}

func (m *merged) Next(r *sim.Request) bool {
	first := -1
	for i := range m.heads {
		if m.ok[i] && (first < 0 || m.heads[i].At < m.heads[first].At) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	*r = m.heads[first]
	m.ok[first] = m.sources[first].Next(&m.heads[first])
	return true
}
