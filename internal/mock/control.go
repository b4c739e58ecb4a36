package mock

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
)

// state is what the control endpoints show of an engine.
type state struct {
	Name   string      `json:"name"`
	URL    string      `json:"url"`
	Up     bool        `json:"up"` // started and not killed; with the fault refuse it is up and not listening
	Config configState `json:"config"`
	Fault  *faultState `json:"fault"`
	Stats  Stats       `json:"stats"`
}

type configState struct {
	Models                 []string `json:"models"`
	PrefillTokensPerSecond float64  `json:"prefill_tokens_per_second"`
	InterToken             Duration `json:"inter_token"`
	BaseLatency            Duration `json:"base_latency"`
	Slots                  int      `json:"slots"`
	QueueLimit             int      `json:"queue_limit"`
	OutputTokens           int      `json:"output_tokens"`
	KVTokens               int      `json:"kv_tokens"`
	OwnedBy                string   `json:"owned_by"`
	Seed                   uint64   `json:"seed"`
	NeedsKey               bool     `json:"needs_key"`

	Engine *engineState `json:"engine"` // the timing model
}

type engineState struct {
	Scheduler    string `json:"scheduler"`
	StepTokens   int    `json:"step_tokens"`
	MaxSequences int    `json:"max_sequences"`
	Slots        int    `json:"slots"`
	BlockTokens  int    `json:"block_tokens"`
	Blocks       int    `json:"blocks"`
}

type faultState struct {
	Fault
	Hits int64 `json:"hits"`
}

func (e *Engine) state() state {
	c := &e.cfg
	s := state{Name: c.Name, URL: e.URL(), Stats: e.Stats(), Config: configState{
		Models: c.Models, PrefillTokensPerSecond: c.PrefillTokensPerSecond,
		InterToken: Duration(c.InterToken), BaseLatency: Duration(c.BaseLatency),
		Slots: c.Slots, QueueLimit: c.QueueLimit, OutputTokens: c.OutputTokens, KVTokens: c.KVTokens,
		OwnedBy: c.OwnedBy, Seed: c.Seed, NeedsKey: c.APIKey != "",
	}}
	if m := c.Engine; m != nil {
		s.Config.Engine = &engineState{m.Scheduler.String(), m.StepTokens, m.MaxSequences, m.Slots, m.BlockTokens, m.Blocks}
	}
	e.mu.Lock()
	s.Up = e.session != nil
	e.mu.Unlock()
	if f := e.fault.Load(); f != nil {
		s.Fault = &faultState{f.Fault, f.hits.Load()}
	}
	return s
}

// changeFault is the control endpoint of the fault: GET, POST or PUT, DELETE. It returns the status and the body.
func (e *Engine) changeFault(method string, body []byte) (int, []byte) {
	switch method {
	case http.MethodGet:
	case http.MethodPost, http.MethodPut:
		f, err := decodeFault(body)
		if err == nil {
			err = e.SetFault(f)
		}
		if err != nil {
			return http.StatusBadRequest, controlError(err.Error())
		}
	case http.MethodDelete:
		if err := e.ClearFault(); err != nil {
			return http.StatusConflict, controlError(err.Error())
		}
	default:
		return http.StatusMethodNotAllowed, controlError("use GET, POST or DELETE")
	}
	return http.StatusOK, asJSON(e.state())
}

func controlError(message string) []byte { return asJSON(map[string]string{"error": message}) }

func asJSON(v any) []byte {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("BUG: mock: state that JSON cannot hold: " + err.Error())
	}
	return append(b, '\n')
}

// control serves /mock/fault and /mock/state on the engine's own listener.
func (c *conn) control(path string) error {
	status, body := http.StatusNotFound, controlError("there are /mock/fault and /mock/state")
	switch path {
	case "/mock/fault":
		status, body = c.engine.changeFault(c.req.Method, c.body)
	case "/mock/state":
		status, body = http.StatusOK, asJSON(c.engine.state())
	}
	return c.respond(status, jsonType, body)
}

// Control is a handler that reaches every engine of a process even while its own listener is closed. An engine is named by its
// port or its name:
//
//	GET    /engines                  the state of all
//	GET    /engines/{engine}         the state of one
//	GET, POST, DELETE /engines/{engine}/fault
//	POST   /engines/{engine}/kill    as a crash
//	POST   /engines/{engine}/restart
func Control(engines []*Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		all := make([]state, len(engines))
		for i, e := range engines {
			all[i] = e.state()
		}
		reply(w, http.StatusOK, asJSON(all))
	})
	on := func(pattern string, do func(e *Engine, r *http.Request) (int, []byte)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			for _, e := range engines {
				_, port, _ := net.SplitHostPort(e.Addr())
				if id := r.PathValue("engine"); id == port || id == e.Name() {
					status, body := do(e, r)
					reply(w, status, body)
					return
				}
			}
			reply(w, http.StatusNotFound, controlError("no engine has the port or name "+r.PathValue("engine")+": see /engines"))
		})
	}
	on("GET /engines/{engine}", func(e *Engine, _ *http.Request) (int, []byte) {
		return http.StatusOK, asJSON(e.state())
	})
	on("/engines/{engine}/fault", func(e *Engine, r *http.Request) (int, []byte) {
		body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 1<<20))
		if err != nil {
			return http.StatusBadRequest, controlError(err.Error())
		}
		return e.changeFault(r.Method, body)
	})
	on("POST /engines/{engine}/kill", func(e *Engine, _ *http.Request) (int, []byte) {
		e.Kill()
		return http.StatusOK, asJSON(e.state())
	})
	on("POST /engines/{engine}/restart", func(e *Engine, _ *http.Request) (int, []byte) {
		if err := e.Restart(); err != nil {
			return http.StatusConflict, controlError(err.Error())
		}
		return http.StatusOK, asJSON(e.state())
	})
	return mux
}

func reply(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(status)
	w.Write(body)
}
