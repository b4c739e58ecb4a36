package trace

// Recent is a map that forgets what was not used of late: it holds between room and twice as many entries. Use by one goroutine.
type Recent[K comparable, V any] struct {
	room       int
	young, old map[K]V
	gone       func(V)
}

// NewRecent returns an empty Recent. It tells gone of each value that it forgets; nil = nobody.
func NewRecent[K comparable, V any](room int, gone func(V)) *Recent[K, V] {
	return &Recent[K, V]{room: room, young: map[K]V{}, old: map[K]V{}, gone: gone}
}

// Get returns the value of a key, which counts as used.
func (r *Recent[K, V]) Get(key K) (V, bool) {
	value, ok := r.young[key]
	if ok {
		return value, true
	}
	if value, ok = r.old[key]; ok {
		r.Put(key, value)
	}
	return value, ok
}

// Put sets the value of a key.
func (r *Recent[K, V]) Put(key K, value V) {
	delete(r.old, key)
	if _, known := r.young[key]; !known && len(r.young) >= r.room {
		r.drop(r.old)
		r.young, r.old = r.old, r.young
	}
	r.young[key] = value
}

// Forget forgets everything.
func (r *Recent[K, V]) Forget() {
	r.drop(r.young)
	r.drop(r.old)
}

func (r *Recent[K, V]) drop(entries map[K]V) {
	if r.gone != nil {
		for _, value := range entries {
			r.gone(value)
		}
	}
	clear(entries)
}
