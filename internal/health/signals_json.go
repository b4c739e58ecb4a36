package health

import (
	"encoding/json"
	"errors"
	"math"
)

// number is a JSON number, NaN if it is something else.
type number float64

// UnmarshalJSON takes what is no number for not said.
func (n *number) UnmarshalJSON(b []byte) error {
	var x *float64
	if json.Unmarshal(b, &x) != nil || x == nil {
		*n = number(math.NaN())
		return nil
	}
	*n = number(*x)
	return nil
}

// decode is lenient: a value of a wrong type leaves its field as it is and reads the others.
func decode(body []byte, v any) bool {
	err := json.Unmarshal(body, v)
	_, wrongType := errors.AsType[*json.UnmarshalTypeError](err)
	return err == nil || wrongType
}

// readSGLangLoads reads SGLang's page of loads, one for each data-parallel rank. A list without any is an engine that is broken, not one that
// is idle; one that is not ready says a size of 0.
func readSGLangLoads(body []byte, t *told) bool {
	type load struct {
		Running *number `json:"num_running_reqs"`
		Waiting *number `json:"num_waiting_reqs"`
		Use     *number `json:"token_usage"`
		Size    *number `json:"max_total_num_tokens"`
	}
	var page struct {
		Loads []load `json:"loads"`
	}
	if !decode(body, &page) {
		return false
	}
	var running, waiting, use, size sum
	add := func(s *sum, x *number) {
		if x != nil {
			s.add(float64(*x))
		}
	}
	for _, l := range page.Loads {
		add(&running, l.Running)
		add(&waiting, l.Waiting)
		add(&use, l.Use)
		add(&size, l.Size)
	}
	t.Running, t.Waiting, t.KVUse, t.CacheTokens, t.Several = running.count(), waiting.count(), use.share(), size.tokens(), running.n > 1
	return running.n+waiting.n > 0
}

// readLlamacppSlots reads the slots of llama.cpp's server: what works. What waits for a slot is not told.
func readLlamacppSlots(body []byte, t *told) bool {
	var slots []struct {
		ID         *int  `json:"id"`
		Processing *bool `json:"is_processing"`
	}
	if !decode(body, &slots) {
		return false
	}
	var running sum
	for _, s := range slots {
		if s.ID == nil || s.Processing == nil {
			continue
		}
		busy := 0.0
		if *s.Processing {
			busy = 1
		}
		running.add(busy)
	}
	t.Running = running.count()
	return running.n > 0
}

// maxLoaded bounds how many models in memory are read.
const maxLoaded = 256

// readOllama reads which models Ollama has in memory. It tells nothing of requests.
func readOllama(body []byte, t *told) bool {
	var page struct {
		Models *[]struct {
			Name  string `json:"name"`
			Model string `json:"model"`
		} `json:"models"`
	}
	if !decode(body, &page) || page.Models == nil {
		return false
	}
	t.loaded = []string{}
	for _, m := range (*page.Models)[:min(len(*page.Models), maxLoaded)] {
		if m.Model == "" {
			m.Model = m.Name
		}
		t.loaded = append(t.loaded, m.Model)
	}
	return true
}

// readLMStudio reads which models LM Studio has in memory. It tells nothing of requests.
func readLMStudio(body []byte, t *told) bool {
	var page struct {
		Data []struct {
			ID    string `json:"id"`
			State string `json:"state"`
		} `json:"data"`
	}
	if !decode(body, &page) {
		return false
	}
	states := false
	loaded := []string{}
	for _, m := range page.Data[:min(len(page.Data), maxLoaded)] {
		states = states || m.State != ""
		if m.State == "loaded" {
			loaded = append(loaded, m.ID)
		}
	}
	if states {
		t.loaded = loaded
	}
	return states
}
