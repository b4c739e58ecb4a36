package console

import (
	"math"
	"time"

	"evenkeel/internal/exchange"
	"evenkeel/internal/route"
)

// Explanation is what /explain says about one request, in JSON. Field names are stable, units are in the
// names; a number that is not known is left out. Text renders the same for people.
type Explanation struct {
	ID              string    `json:"id"`
	Arrived         time.Time `json:"arrived"`
	DurationSeconds float64   `json:"duration_seconds"`
	QueuedSeconds   float64   `json:"queued_seconds"`            // waiting for room, over all attempts
	ContentSeconds  float64   `json:"content_seconds,omitempty"` // arrival to first content sent to the client
	AnswerBytes     int64     `json:"answer_bytes"`              // sent to the client
	Result          string    `json:"result"`
	Status          int       `json:"status"` // what the client saw, 0 if it left before
	Model           string    `json:"model"`  // of the last attempt, else the one asked for
	FallbackDepth   int       `json:"fallback_depth"`
	Facts           Facts     `json:"facts"`
	Attempts        []Attempt `json:"attempts"`
	Refusals        []Refusal `json:"refusals,omitempty"` // questions to the router that gave no deployment
	Failure         *Failure  `json:"failure,omitempty"`  // our own error, if the client got one
}

// Facts is what was known about the request. There is no prompt text in it.
type Facts struct {
	Model           string   `json:"model"`
	API             string   `json:"api"`
	Tenant          string   `json:"tenant,omitempty"`
	Stream          bool     `json:"stream"`
	PromptBytes     int      `json:"prompt_bytes"`
	PrefixBlocks    int      `json:"prefix_blocks,omitempty"` // of text, by which prompts that begin alike are known
	MaxOutputTokens int      `json:"max_output_tokens,omitempty"`
	ClientRetry     int      `json:"client_retry,omitempty"`
	Pin             string   `json:"pin,omitempty"`
	Exclude         []string `json:"exclude,omitempty"`
	Seed            uint64   `json:"seed,string"` // as text: JSON readers round large numbers
}

// Attempt is one use of one deployment.
type Attempt struct {
	Deployment      string    `json:"deployment"`
	Model           string    `json:"model"`
	StartedSeconds  float64   `json:"started_seconds"` // after arrival
	DurationSeconds float64   `json:"duration_seconds"`
	Hedge           bool      `json:"hedge,omitempty"` // it began while another attempt ran, which took long
	Waste           bool      `json:"waste,omitempty"` // it was given up since another attempt had content first
	Drift           string    `json:"drift,omitempty"` // what the answer names differently than the deployment's last one did
	Decision        *Decision `json:"decision,omitempty"`
	Outcome         Outcome   `json:"outcome"`
}

// Refusal is a question to the router that gave no deployment.
type Refusal struct {
	Kind           string    `json:"kind"`
	RetryInSeconds float64   `json:"retry_in_seconds,omitempty"`
	Decision       *Decision `json:"decision,omitempty"`
}

// Decision is one answer of the router with the numbers it used; together with the facts it can be
// recomputed from them.
type Decision struct {
	AtSeconds    float64     `json:"at_seconds"` // after arrival
	Model        string      `json:"model"`
	Strategy     string      `json:"strategy,omitempty"`
	Epoch        uint64      `json:"epoch"`
	Seed         uint64      `json:"seed,string"`
	Draw         int         `json:"draw"`
	RunTotal     int64       `json:"run_total"`
	PromptTokens int         `json:"prompt_tokens"` // estimate
	OutputTokens int         `json:"output_tokens"` // that room is kept for
	AnswerTokens int         `json:"answer_tokens"` // that the answer is likely to have
	Chosen       string      `json:"chosen,omitempty"`
	Trial        bool        `json:"trial,omitempty"` // chosen without the strategy, to see whether it is well again
	Panic        bool        `json:"panic,omitempty"` // so few were in use that breakers were passed over
	Eligible     int         `json:"eligible"`
	Opening      uint64      `json:"opening,string,omitempty"` // keyed hash of a conversation's prompt up to the first answer, by which balancers choose alike among equals; as text
	Outlook      *Outlook    `json:"outlook,omitempty"`        // what was known of all deployments together
	Home         *Home       `json:"home,omitempty"`           // where the session of the request, or the beginning of its prompt, was known to be
	Candidates   []Candidate `json:"candidates"`
	Omitted      []CutCount  `json:"omitted,omitempty"`
}

// Outlook is what was known of all deployments of the model together.
type Outlook struct {
	Rate           float64 `json:"requests_per_second"`   // for each
	PrefillSeconds float64 `json:"prefill_seconds"`       // of a prompt, in the mean
	StrangersShare float64 `json:"strangers_share"`       // of conversations: of these the turn before was served through another balancer
	Error          float64 `json:"error"`                 // of forecasts: the mean logarithm of what came over what was forecast, whichever way
	WholeError     float64 `json:"whole_error,omitempty"` // likewise, of answers that were not streamed
	Churn          float64 `json:"churn,omitempty"`       // of what caches take in, the share that they had before and had pushed out
}

// Home is where the session of a request, or the beginning of its prompt, was known to be, and whether it was kept there.
type Home struct {
	By          string  `json:"by"` // "session", "prefix" or "answer"
	Deployment  string  `json:"deployment"`
	CachedShare float64 `json:"cached_share"` // of the prompt, as it is thought
	Slowdown    float64 `json:"slowdown"`     // how many times slower or busier than the others it was
	Limit       float64 `json:"limit"`        // up to which requests are kept there
	Left        string  `json:"left,omitempty"`
}

// Forecast is what was expected of a deployment for this request.
type Forecast struct {
	CachedTokens   int     `json:"cached_tokens"`
	WaitSeconds    float64 `json:"wait_seconds"`              // until it has done the prompts before
	OthersSeconds  float64 `json:"others_seconds,omitempty"`  // of these, for prompts of others, as its engine says
	LoadSeconds    float64 `json:"load_seconds,omitempty"`    // of these, until its model or the adapter is in memory
	PrefillSeconds float64 `json:"prefill_seconds"`           // for this one
	CommonSeconds  float64 `json:"common_seconds,omitempty"`  // of these, for how so many prompts begin that each deployment should have it
	Answers        int     `json:"answers"`                   // that it was producing
	CacheShare     float64 `json:"cache_share,omitempty"`     // of its cache, with this request
	OwnCacheShare  float64 `json:"own_cache_share,omitempty"` // of these, for this request
	LimitShare     float64 `json:"limit_share,omitempty"`     // of its tightest limit per minute, used up once this is sent
	TokenSeconds   float64 `json:"token_seconds"`             // between tokens of its answer
	SlowerSeconds  float64 `json:"slower_seconds"`            // that each token of the other answers there takes longer
	Dollars        float64 `json:"dollars,omitempty"`         // that the request costs there
}

// Candidate is one deployment as a decision saw it.
type Candidate struct {
	Deployment   string    `json:"deployment"`
	Cut          string    `json:"cut,omitempty"`           // why it was not eligible
	CutBy        string    `json:"cut_by,omitempty"`        // the scope that caused the cut, if not the deployment
	UntilSeconds float64   `json:"until_seconds,omitempty"` // how long the cut lasts, if time alone ends it
	Weight       float64   `json:"weight"`
	InFlight     int       `json:"in_flight"`
	Tokens       int       `json:"tokens"`                 // reserved there
	WorkTokens   int       `json:"work_tokens"`            // outstanding there
	TTFTSeconds  float64   `json:"ttft_seconds,omitempty"` // expected
	Samples      int       `json:"samples"`                // that ttft_seconds rests on
	P95Seconds   float64   `json:"p95_seconds,omitempty"`  // to the first token, 95th percentile of late
	Penalty      float64   `json:"penalty,omitempty"`      // failures of late, in requests
	Share        float64   `json:"share,omitempty"`        // part of its usual traffic that it is to get, left out if all or if it is cut
	WellSeconds  *float64  `json:"well_seconds,omitempty"` // since it was out last, left out if it never was
	LastPick     uint64    `json:"last_pick"`
	RunPicks     int64     `json:"run_picks"`
	Forecast     *Forecast `json:"forecast,omitempty"` // where the strategy looks at one
	Terms        []Term    `json:"terms,omitempty"`
	Score        *float64  `json:"score,omitempty"` // sum of the terms; lower is better
}

// Term is one part of a score.
type Term struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// CutCount counts candidates that are not listed.
type CutCount struct {
	Cut   string `json:"cut"` // "" = eligible
	Count int    `json:"count"`
}

// Outcome is what an attempt came to.
type Outcome struct {
	Verdict           string  `json:"verdict"`
	Class             string  `json:"class,omitempty"`
	Detail            string  `json:"detail,omitempty"`
	Fault             string  `json:"fault,omitempty"`  // what a deployment_fault is about
	Status            int     `json:"status,omitempty"` // upstream's
	TTFTSeconds       float64 `json:"ttft_seconds,omitempty"`
	ITLSeconds        float64 `json:"itl_seconds,omitempty"`
	RetryAfterSeconds float64 `json:"retry_after_seconds,omitempty"`
	InputTokens       int     `json:"input_tokens"`  // cached ones included
	CachedTokens      int     `json:"cached_tokens"` // of the input
	OutputTokens      int     `json:"output_tokens"` // reasoning included
	ReasoningTokens   int     `json:"reasoning_tokens"`
	TokensReported    bool    `json:"tokens_reported"` // by the engine; else they are estimates
	ServedModel       string  `json:"served_model,omitempty"`
	Fingerprint       string  `json:"fingerprint,omitempty"`
}

// Failure is an error of ours that the client got.
type Failure struct {
	Status         int     `json:"status"`
	Code           string  `json:"code"`
	Message        string  `json:"message"`
	RetryInSeconds float64 `json:"retry_in_seconds,omitempty"`
	Final          bool    `json:"final,omitempty"` // repeating is useless
	Cut            bool    `json:"cut,omitempty"`   // content had been sent before
}

// Explain tells a finished request.
func Explain(r *exchange.Record) *Explanation {
	e := &Explanation{
		ID: r.Facts.ID, Arrived: r.Started, DurationSeconds: r.Ended.Sub(r.Started).Seconds(), QueuedSeconds: r.Queued.Seconds(),
		AnswerBytes: r.Bytes, Result: string(r.Result), Status: r.Status, Model: lastModel(r), FallbackDepth: r.Depth,
		Facts: Facts{
			Model: r.Facts.Model, API: r.Facts.API, Tenant: r.Facts.Tenant, Stream: r.Facts.Stream, PromptBytes: r.Facts.PromptBytes,
			PrefixBlocks:    r.Blocks,
			MaxOutputTokens: r.Facts.MaxOutput, ClientRetry: r.Facts.ClientRetry, Pin: r.Facts.Pin, Exclude: r.Facts.ExcludeNames,
			Seed: r.Facts.Seed,
		},
		Attempts: make([]Attempt, len(r.Attempts)),
	}
	if !r.Content.IsZero() {
		e.ContentSeconds = r.Content.Sub(r.Started).Seconds()
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		e.Attempts[i] = Attempt{
			Deployment: a.Deployment, Model: a.Model, StartedSeconds: a.Started.Sub(r.Started).Seconds(),
			DurationSeconds: a.Ended.Sub(a.Started).Seconds(), Hedge: a.Hedge, Waste: a.Waste, Drift: a.Drift, Decision: explainDecision(a.Decision, r.Started), Outcome: explainOutcome(&a.Outcome),
		}
	}
	for _, f := range r.Refusals {
		e.Refusals = append(e.Refusals, Refusal{f.Kind.String(), f.RetryIn.Seconds(), explainDecision(f.Decision, r.Started)})
	}
	if f := r.Failure; f != nil {
		e.Failure = &Failure{f.Status, f.Code, f.Message, float64(f.RetryIn) / 1000, f.Final, f.Cut}
	}
	return e
}

func lastModel(r *exchange.Record) string {
	if r.Model != "" {
		return r.Model
	}
	return r.Facts.Model
}

func explainDecision(d *route.Decision, arrived time.Time) *Decision {
	if d == nil {
		return nil
	}
	out := &Decision{
		AtSeconds: d.At.Sub(arrived).Seconds(), Model: d.Model, Strategy: d.Strategy, Epoch: d.Epoch, Seed: d.Seed, Draw: d.Draw, Opening: d.Opening,
		RunTotal: d.RunTotal, PromptTokens: d.Prompt, OutputTokens: d.Output, AnswerTokens: d.Answer, Chosen: d.Chosen, Trial: d.Trial, Panic: d.Panic, Eligible: d.Eligible,
		Candidates: make([]Candidate, len(d.Candidates)),
	}
	if o := d.Outlook; o != (route.Outlook{}) {
		out.Outlook = &Outlook{finite(o.Rate), finite(o.Prefill), finite(o.Strangers), finite(o.Error), finite(o.WholeError), finite(o.Churn)}
	}
	if h := d.Home; h.By != "" {
		out.Home = &Home{h.By, h.Deployment, h.Share, finite(h.Slowdown), h.Limit, h.Left}
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		v := Candidate{
			Deployment: c.ID, Cut: string(c.Cut), CutBy: c.CutBy, UntilSeconds: c.Until.Seconds(), Weight: c.Weight, InFlight: c.InFlight,
			Tokens: c.Tokens, WorkTokens: c.Work, TTFTSeconds: finite(c.TTFT), Samples: c.Samples, LastPick: c.LastPick, RunPicks: c.RunPicks,
			P95Seconds: finite(c.P95), Penalty: c.Penalty,
		}
		if f := c.Forecast; f != (route.Forecast{}) {
			v.Forecast = &Forecast{f.Cached, finite(f.Wait), finite(f.Others), finite(f.Load), finite(f.Prefill), finite(f.Common), f.Answers, f.Fill, f.Own, f.Used, finite(f.Token), finite(f.Slower), finite(f.Dollars)}
		}
		if c.Share < 1 {
			v.Share = c.Share
		}
		if c.Healthy < route.Always {
			well := c.Healthy.Seconds()
			v.WellSeconds = &well
		}
		for _, t := range c.Noted() {
			v.Terms = append(v.Terms, Term{t.Name, finite(t.Value)})
		}
		if score, ok := c.Score(); ok {
			score = finite(score)
			v.Score = &score
		}
		out.Candidates[i] = v
	}
	for _, o := range d.Omitted {
		out.Omitted = append(out.Omitted, CutCount{string(o.Cut), o.Count})
	}
	return out
}

func explainOutcome(o *route.Outcome) Outcome {
	return Outcome{
		Verdict: o.Verdict.String(), Class: o.Class, Detail: o.Detail, Fault: faultOf(o), Status: o.Status,
		TTFTSeconds: o.TTFT.Seconds(), ITLSeconds: o.ITL.Seconds(), RetryAfterSeconds: o.RetryAfter.Seconds(),
		InputTokens: o.InputTokens, CachedTokens: o.CachedTokens, OutputTokens: o.OutputTokens, ReasoningTokens: o.ReasoningTokens,
		TokensReported: o.Reported, ServedModel: o.ServedModel, Fingerprint: o.Fingerprint,
	}
}

func faultOf(o *route.Outcome) string {
	if o.Verdict != route.DeploymentFault {
		return ""
	}
	return o.Fault.String()
}

// finite makes a number fit for JSON, which has no infinity: tiny weights can lead there.
func finite(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -math.MaxFloat64), math.MaxFloat64)
}
