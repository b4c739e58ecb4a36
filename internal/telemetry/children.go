package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// vec is a metric with labels, of the library's.
type vec[C any] interface {
	WithLabelValues(labels ...string) C
	DeleteLabelValues(labels ...string) bool
}

// children resolves the series of one vec once per key, so that the hot path neither builds strings nor
// allocates. Safe for concurrent use.
type children[K comparable, C any] struct {
	vec    vec[C]
	labels func(K) []string

	known atomic.Pointer[map[K]C] // never changed once stored: readers on many cores must not write to what they share
	mu    sync.Mutex              // of those who store another
}

func newChildren[K comparable, C any](v vec[C], labels func(K) []string) *children[K, C] {
	c := &children[K, C]{vec: v, labels: labels}
	c.known.Store(&map[K]C{})
	return c
}

func (c *children[K, C]) of(k K) C {
	if child, ok := (*c.known.Load())[k]; ok {
		return child
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := maps.Clone(*c.known.Load())
	child := c.vec.WithLabelValues(c.text(k)...)
	known[k] = child
	c.known.Store(&known)
	return child
}

// forget removes the series for whose key gone is true.
func (c *children[K, C]) forget(gone func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := maps.Clone(*c.known.Load())
	for k := range known {
		if gone(k) {
			c.vec.DeleteLabelValues(c.text(k)...)
			delete(known, k)
		}
	}
	c.known.Store(&known)
}

func (c *children[K, C]) each(f func(K)) {
	for k := range *c.known.Load() {
		f(k)
	}
}

func (c *children[K, C]) text(k K) []string {
	labels := c.labels(k)
	for i, l := range labels {
		labels[i] = valid(l)
	}
	return labels
}

// valid makes a string fit for a label: the library panics on text that is not UTF-8, and names of models
// come from engines.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
