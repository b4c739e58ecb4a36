package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

const (
	settlePatience = 10 * time.Second       // for what follows an answer: counters, log lines
	askEvery       = 100 * time.Millisecond // how often a running load's newest answer is asked about
	mostExplained  = 5_000                  // answers asked about after a load
	// disorder is how many exchanges may have ended later than our clients' order says, beside the ones in flight.
	disorder = 200
)

// books are what evenkeel and the engines have counted of one model.
type books struct {
	requests, input, output     int64 // evenkeel's: exchanges that ended, tokens that were metered
	lines                       int   // of exchanges, in evenkeel's log
	engineInput, engineOutput   int64
	engineStarted, engineOthers int64 // requests that reached the engines, and those that did not end well
}

func (b *bed) books(model string) (books, error) {
	var k books
	e := b.places[model][evenkeel].balancer
	status, metrics, err := e.get("/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics: status %d", status)
	}
	if err != nil {
		return k, err
	}
	label := fmt.Sprintf("model=%q", model)
	var errs [5]error
	k.requests, errs[0] = sum(metrics, "evenkeel_requests_total", label)
	var fresh, cached int64
	fresh, errs[1] = sum(metrics, "evenkeel_tokens_total", label, `kind="input"`)
	cached, errs[2] = sum(metrics, "evenkeel_tokens_total", label, `kind="cached_input"`)
	k.output, errs[3] = sum(metrics, "evenkeel_tokens_total", label, `kind="output"`)
	k.input = fresh + cached
	k.lines, errs[4] = e.logged()
	if err := errors.Join(errs[:]...); err != nil {
		return k, err
	}
	return k, b.engineBooks(model, &k)
}

// engineBooks adds what the engines say.
func (b *bed) engineBooks(model string, k *books) error {
	client := http.Client{Timeout: settlePatience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(b.mocks[model] + "/engines")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var all []struct {
		Stats struct {
			Started      int64 `json:"started"`
			Completed    int64 `json:"completed"`
			PromptTokens int64 `json:"prompt_tokens"`
			OutputTokens int64 `json:"output_tokens"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return fmt.Errorf("%s/engines: %w: %.200s", b.mocks[model], err, body)
	}
	for _, e := range all {
		k.engineStarted += e.Stats.Started
		k.engineOthers += e.Stats.Started - e.Stats.Completed
		k.engineInput += e.Stats.PromptTokens
		k.engineOutput += e.Stats.OutputTokens
	}
	return nil
}

// proof is what was found of the exchanges of one cell, over all rounds: that everything was on and right.
type proof struct {
	asked                           int64 // requests that clients made
	requests, input, output, lines  int64 // as evenkeel counts them
	engineInput, engineOutput       int64 // as the engines count them
	sampled, sampledOf              int   // explained right after their answer, of how many asked about
	explained, explainedOf, inReach int   // explained after the load, of how many asked about, of how many the ring could hold
	problems                        []string
}

func (p *proof) add(o proof) {
	p.asked += o.asked
	p.requests += o.requests
	p.input += o.input
	p.output += o.output
	p.lines += o.lines
	p.engineInput += o.engineInput
	p.engineOutput += o.engineOutput
	p.sampled += o.sampled
	p.sampledOf += o.sampledOf
	p.explained += o.explained
	p.explainedOf += o.explainedOf
	p.inReach += o.inReach
	p.problems = append(p.problems, o.problems...)
	p.problems = p.problems[:min(len(p.problems), mostExamples)]
}

func (p *proof) problem(format string, args ...any) {
	if len(p.problems) < mostExamples {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

// witness asks about the newest answer of a running load, again and again, and notes what it finds. It returns when ctx
// ends.
func (e *balancer) witness(ctx context.Context, l *load, p *proof) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		id := l.latest.Load()
		if id == nil || *id == last {
			continue
		}
		last = *id
		p.sampledOf++
		err := e.explains(last)
		for until := time.Now().Add(time.Second); errors.Is(err, errUnknown) && time.Now().Before(until); { // the record may be being written
			_ = sleep(ctx, time.Millisecond) // ends with the loop
			err = e.explains(last)
		}
		if err != nil {
			p.problem("while the load ran: %v", err)
			continue
		}
		p.sampled++
	}
}

var errUnknown = errors.New("explain does not know it")

// explains checks that evenkeel can say of an answer where it came from and why.
func (e *balancer) explains(id string) error {
	status, body, err := e.get("/explain/" + id)
	switch {
	case err != nil:
		return err
	case status == http.StatusNotFound:
		return fmt.Errorf("%s: %w: %.200s", id, errUnknown, body)
	case status != http.StatusOK:
		return fmt.Errorf("%s: status %d: %.200s", id, status, body)
	}
	var x struct {
		ID       string `json:"id"`
		Result   string `json:"result"`
		Attempts []struct {
			Deployment string `json:"deployment"`
			Decision   struct {
				Chosen     string            `json:"chosen"`
				Candidates []json.RawMessage `json:"candidates"`
			} `json:"decision"`
		} `json:"attempts"`
	}
	if err := json.Unmarshal(body, &x); err != nil {
		return fmt.Errorf("%s: %w: %.200s", id, err, body)
	}
	if x.ID != id || x.Result != "complete" || len(x.Attempts) != 1 || x.Attempts[0].Deployment == "" ||
		x.Attempts[0].Decision.Chosen != x.Attempts[0].Deployment || len(x.Attempts[0].Decision.Candidates) != engines {
		return fmt.Errorf("%s: not one attempt, chosen among %d candidates and complete: %.2000s", id, engines, body)
	}
	return nil
}

// prove compares what a load saw with what evenkeel and the engines counted since before, and asks about the answers
// that the ring still holds. The load has ended.
func (b *bed) prove(ctx context.Context, before books, l *load, p *proof) error {
	e := b.places[l.cell.model][evenkeel].balancer
	tally := l.tally()
	asked := int64(tally.asked())
	var now books
	err := eventually(ctx, e.process, func() bool { // counters and lines follow the answer
		var err error
		now, err = b.books(l.cell.model)
		return err == nil && now.requests-before.requests >= asked && int64(now.lines-before.lines) >= asked && now.engineOthers == 0
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.problem("the counters do not come to rest: %+v after %+v and %d requests", now, before, asked)
	}
	p.asked = asked
	p.requests, p.lines = now.requests-before.requests, int64(now.lines-before.lines)
	p.input, p.output = now.input-before.input, now.output-before.output
	p.engineInput, p.engineOutput = now.engineInput-before.engineInput, now.engineOutput-before.engineOutput
	if p.requests != asked || p.lines != asked || now.engineStarted-before.engineStarted != asked {
		p.problem("%d requests were made; evenkeel counts %d and logs %d, the engines count %d", asked, p.requests, p.lines, now.engineStarted-before.engineStarted)
	}
	if p.input != p.engineInput || p.output != p.engineOutput {
		p.problem("evenkeel metered %d and %d tokens, the engines count %d and %d", p.input, p.output, p.engineInput, p.engineOutput)
	}
	return e.explainAll(l, p)
}

// explainAll asks about the answers of a load that the ring must still hold, or about as many of them, evenly chosen, as
// is cheap.
func (e *balancer) explainAll(l *load, p *proof) error {
	var kept struct {
		Kept int `json:"kept"`
	}
	if err := e.getJSON("/explain?n=1", &kept); err != nil {
		return err
	}
	var all []answered
	for _, c := range l.clients {
		all = append(all, c.answered...)
	}
	if complete := l.tally().complete; len(all) < complete {
		p.problem("%d of %d answers have no %s", complete-len(all), complete, idHeader)
	}
	slices.SortFunc(all, func(a, b answered) int { return cmp.Compare(b.at.UnixNano(), a.at.UnixNano()) }) // the newest first
	if len(all) > kept.Kept {
		all = all[:max(0, kept.Kept-len(l.clients)-disorder)]
	}
	p.inReach = len(all)
	step := max(1, (len(all)+mostExplained-1)/mostExplained)
	for i := 0; i < len(all); i += step {
		p.explainedOf++
		if err := e.explains(all[i].id); err != nil {
			p.problem("after the load: %v", err)
			continue
		}
		p.explained++
	}
	return nil
}
