package engine

// Cached returns how many tokens of a request's prompt the engine has in its cache: what it would find if it admitted the request now.
// It changes nothing.
func (e *Engine) Cached(s *Sequence) int {
	return e.model.cached(&job{Sequence: *s, target: s.PromptTokens})
}

func (b *batching) cached(j *job) int { return b.mem.cachedTokens(j) }

func (f *fifo) cached(j *job) int { return f.cache.cachedTokens(j) }

func (k *blockCache) cachedTokens(j *job) int { return k.match(j).blocks * k.blockTokens }

func (k *slotCaches) cachedTokens(j *job) int {
	best := 0
	for i := range k.slots {
		if s := &k.slots[i]; !s.busy {
			best = max(best, k.shared(s, j))
		}
	}
	return min(best*k.blockTokens, j.target-1)
}

func (k *sessionCache) cachedTokens(j *job) int { return k.matched(j) * k.blockTokens }
