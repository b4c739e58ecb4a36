package app

import (
	"strconv"

	"evenkeel/internal/config"
)

// ranks are what an endpoint's deployments of one model are told apart by: the numbers of its data-parallel ranks, or "" alone where the
// server chooses. Where the engine says that it has fewer than are configured, there are no others: vLLM refuses requests for those.
func (b *builder) ranks(e *config.Endpoint) []string {
	n := e.DataParallel
	if n <= 1 {
		return []string{""}
	}
	if has := b.reports[e.Name].Ranks; has > 0 {
		n = min(n, has)
	}
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return list
}

// base is the ID of the deployment of the model that a model is an adapter of, as the engine lists it; empty if it is none. A provider may
// list as parents what models were made from.
func (b *builder) base(e *config.Endpoint, rank, model string) string {
	if kind := kindOf(e, b.reports).Name; kind != "vllm" && kind != "sglang" {
		return ""
	}
	for _, m := range b.reports[e.Name].Models {
		if m.ID == model && m.Parent != "" && m.Parent != model {
			return deploymentID(e, rank, m.Parent)
		}
	}
	return ""
}

// misranking is that an endpoint's engine has another number of ranks than is configured.
type misranking struct{ has, configured int }

// warnRanks warns of each such endpoint once. Callers hold mu.
func (a *App) warnRanks(c *config.Config) {
	now := map[string]misranking{}
	for i := range c.Endpoints {
		e := &c.Endpoints[i]
		m := misranking{a.reports[e.Name].Ranks, max(e.DataParallel, 1)}
		if m.has == 0 || m.has == m.configured {
			continue
		}
		now[e.Name] = m
		if a.misranked[e.Name] == m {
			continue
		}
		log := a.logger.With("endpoint", e.Name, "ranks", m.has, "data_parallel", m.configured)
		switch {
		case m.has < m.configured:
			log.Warn("the engine has fewer data-parallel ranks than are configured; those that it does not have are not used")
		case m.configured > 1:
			log.Warn("the engine has more data-parallel ranks than are configured; nothing is sent to the others")
		default:
			log.Warn("the engine has several data-parallel ranks and chooses among them without regard to what their caches hold; with data_parallel set to their number each is a deployment of its own")
		}
	}
	a.misranked = now
}
