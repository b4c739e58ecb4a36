package app

import (
	"slices"

	"evenkeel/internal/discovery"
)

// remembering adds to a report what is not known yet to a watch that has just begun, after a reload for instance:
// an endpoint that is down then still has the models it had.
func remembering(old, r discovery.Report) discovery.Report {
	if r.Kind == "" {
		r.Kind, r.Version, r.KVTokens, r.Ranks = old.Kind, old.Version, old.KVTokens, old.Ranks
	}
	if r.Models == nil {
		r.Models = old.Models
	}
	return r
}

// same reports whether two reports describe the same thing.
func same(a, b discovery.Report) bool {
	return a.Reachable == b.Reachable && a.Refused == b.Refused && a.Kind == b.Kind && a.Version == b.Version && a.KVTokens == b.KVTokens &&
		a.Ranks == b.Ranks &&
		slices.Equal(a.Models, b.Models) && (a.Err == nil) == (b.Err == nil) && (a.Err == nil || a.Err.Error() == b.Err.Error())
}

// announce logs what is new about an endpoint. One that comes up is reported twice, at once and with what the
// engine says of itself, and announced once: when that is known. Callers hold mu.
func (a *App) announce(old, r discovery.Report, known bool) {
	log := a.logger.With("endpoint", r.Target.Name, "url", r.Target.URL)
	held := a.held[r.Target.Name]
	delete(a.held, r.Target.Name)
	wasUp := known && up(old)
	switch {
	case !r.Reachable && !known:
		log.Warn("endpoint does not answer yet; it joins when it does", "error", r.Err)
	case !r.Reachable && old.Reachable:
		log.Warn("endpoint stopped answering; requests go elsewhere until it is back", "error", r.Err)
	case !r.Reachable:
	case r.Err != nil:
		log.Warn("endpoint answers, but not as expected", "kind", r.Kind, "error", r.Err)
	case !held && !wasUp && !detailed(r) && saysMore[r.Kind]:
		a.held[r.Target.Name] = true
	case !held && wasUp && old.Kind == r.Kind && slices.Equal(modelNames(old), modelNames(r)) && !(detailed(old) && detailed(r)):
	default:
		args := []any{"kind", r.Kind, "models", modelNames(r)}
		if r.Version != "" {
			args = append(args, "version", r.Version)
		}
		if r.KVTokens > 0 {
			args = append(args, "kv_tokens", r.KVTokens)
		}
		if r.Ranks > 1 {
			args = append(args, "data_parallel_ranks", r.Ranks)
		}
		log.Info("endpoint serves", args...)
	}
}

// saysMore holds the kinds that are often known before the engine was asked about itself, and then say more.
var saysMore = map[string]bool{"vllm": true, "sglang": true, "llamacpp": true, "ollama": true, "tgi": true}

func up(r discovery.Report) bool { return r.Reachable && r.Err == nil }

// detailed reports whether it is known what the engine says of itself.
func detailed(r discovery.Report) bool { return r.Version != "" || r.KVTokens > 0 }

func modelNames(r discovery.Report) []string {
	list := make([]string, len(r.Models))
	for i, m := range r.Models {
		list[i] = m.ID
	}
	return list
}
