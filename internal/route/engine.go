package route

import (
	"math"
	"slices"
	"time"
)

// engine is what computes a deployment's requests: its queue and its cache, and what is known of both. A model and its adapters share one;
// each of an endpoint's data-parallel ranks is one of its own. Guarded by Router.mu.
type engine struct {
	key    key
	line   line
	speed  speed // of prompts
	steps  steps
	decode speed // of answers' tokens
	memory memory
	hint   *hint // nil = it never said anything

	running int // requests of ours in flight there
	held    int // tokens that are reserved for them
	ahead   int // prompt tokens of what has no first token yet
	nodes   []*node
	asked   uint64 // Router.asked when it was last looked at
	// adapters are those that are thought to be in its memory, the one used last first: as many as there is room for. What it tells are
	// adapters with requests, not what is loaded, so that who is idle is remembered here.
	adapters []string
}

// mostAdapters bounds the adapters that an engine is taken to have room for.
const mostAdapters = 256

// assign makes a node one of an engine's. Its leases stay with the one before.
func (r *Router) assign(n *node, k key) {
	e := r.engines[k]
	switch {
	case e == nil:
		e = &engine{key: k}
		e.memory.holder = r.index.Join(e.memory.room(r.blockBytes))
		r.engines[k] = e
	case e == n.engine:
		return
	}
	if n.engine != nil {
		r.unassign(n)
	}
	n.engine = e
	e.nodes = append(e.nodes, n)
}

// unassign takes a node from its engine, which is forgotten if it has no other.
func (r *Router) unassign(n *node) {
	e := n.engine
	if e.nodes = slices.DeleteFunc(e.nodes, func(o *node) bool { return o == n }); len(e.nodes) == 0 {
		r.index.Leave(e.memory.holder)
		delete(r.engines, e.key)
	}
}

// use notes that a request for a deployment goes to the engine.
func (e *engine) use(d *Deployment) {
	if d.Base != "" {
		e.load(d.Model)
	}
}

// load notes that an adapter is in use, and so is in memory, in the place of the one that was not used for longest.
func (e *engine) load(adapter string) {
	room := e.places()
	if room == 0 {
		return
	}
	at := slices.Index(e.adapters, adapter)
	if at < 0 {
		at = len(e.adapters)
		e.adapters = append(e.adapters, adapter)
	}
	copy(e.adapters[1:at+1], e.adapters[:at])
	e.adapters[0] = adapter
	e.adapters = e.adapters[:min(len(e.adapters), room)]
}

// places is how many adapters can be in memory, 0 if the engine never said.
func (e *engine) places() int {
	if e.hint == nil || e.hint.told.Adapters == nil {
		return 0
	}
	return min(e.hint.told.Adapters.Room, mostAdapters)
}

// tell takes which adapters have requests there, as the engine says: they are in memory, or will be next. Where there are more than
// there is room for, those that were there before are.
func (e *engine) tell(s *Adapters) {
	if s == nil {
		return
	}
	active, room := s.Active[:min(len(s.Active), mostAdapters)], e.places()
	for _, a := range active {
		if slices.Contains(e.adapters, a) {
			e.load(a)
		}
	}
	for _, a := range active {
		if len(e.adapters) < room || !slices.Contains(active, e.adapters[len(e.adapters)-1]) {
			e.load(a)
		}
	}
	e.adapters = e.adapters[:min(len(e.adapters), room)]
}

// loading is how many seconds a request for a deployment waits until its model or its adapter is in memory: for it to be loaded, and for
// room there. So many answers are in the making, and those for adapters of which so many tokens are expected take token seconds for each.
func (n *node) loading(now time.Time, answers, answer int, token float64) (load, room float64) {
	h := n.hint
	switch {
	case h == nil:
	case n.dep.Base == "" || n.places() == 0:
		if answers == 0 && h.told.Unloaded && now.Sub(h.told.At) <= signalGone {
			return h.loads(loadPrior), 0
		}
	case !slices.Contains(n.adapters, n.dep.Model):
		return h.loads(adapterPrior), n.engine.room(now, answer) * token
	}
	return 0, 0
}

// room is how many tokens of answers are produced before an adapter that is not in memory has a place there: until the requests end of the
// first of those that are, 0 if one has none. What others sent is taken to be at its beginning.
func (e *engine) room(now time.Time, answer int) float64 {
	if len(e.adapters) < e.places() {
		return 0
	}
	var others []string
	if now.Sub(e.hint.told.At) <= runningHalfLife {
		others = e.hint.told.Adapters.Active
	}
	soonest := math.Inf(1)
	for i := len(e.adapters) - 1; i >= 0; i-- {
		ours := slices.IndexFunc(e.nodes, func(o *node) bool { return o.inFlight > 0 && o.dep.Base != "" && o.dep.Model == e.adapters[i] })
		switch {
		case ours >= 0:
			o := e.nodes[ours]
			soonest = min(soonest, float64(o.work)/float64(o.inFlight))
		case slices.Contains(others, e.adapters[i]):
			soonest = min(soonest, float64(answer))
		default:
			return 0
		}
	}
	return soonest
}
