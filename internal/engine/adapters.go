package engine

import "slices"

func appendAdapter(list []string, j *job) []string {
	if j.Adapter == "" || slices.Contains(list, j.Adapter) {
		return list
	}
	return append(list, j.Adapter)
}

// fits reports whether there is room for a job's adapter beside those of the jobs that run.
func (b *batching) fits(j *job) bool {
	if b.cfg.MaxAdapters == 0 || j.Adapter == "" {
		return true
	}
	var used []string
	for _, o := range b.running {
		used = appendAdapter(used, o)
	}
	return len(used) < b.cfg.MaxAdapters || slices.Contains(used, j.Adapter)
}

// adapt sees to it that a job's adapter is in memory.
func (b *batching) adapt(j *job) {
	if b.cfg.MaxAdapters == 0 || j.Adapter == "" {
		return
	}
	at := slices.Index(b.adapters, j.Adapter)
	if at < 0 {
		b.now.loads++
		b.loads++
		if at = len(b.adapters); at == b.cfg.MaxAdapters {
			at = b.idle()
		} else {
			b.adapters = append(b.adapters, "")
		}
	}
	copy(b.adapters[1:at+1], b.adapters[:at])
	b.adapters[0] = j.Adapter
}

// idle is the place of the adapter that was not used for longest, of those that no running job is for; fits has said that there is one.
func (b *batching) idle() int {
	for at := len(b.adapters) - 1; at >= 0; at-- {
		if !slices.ContainsFunc(b.running, func(o *job) bool { return o.Adapter == b.adapters[at] }) {
			return at
		}
	}
	panic("BUG: an adapter is let in and there is no room")
}
