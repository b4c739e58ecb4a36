package telemetry

import (
	"strings"
	"sync"
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

	mu    sync.RWMutex
	known map[K]C
}

func newChildren[K comparable, C any](v vec[C], labels func(K) []string) *children[K, C] {
	return &children[K, C]{vec: v, labels: labels, known: map[K]C{}}
}

func (c *children[K, C]) of(k K) C {
	c.mu.RLock()
	child, ok := c.known[k]
	c.mu.RUnlock()
	if ok {
		return child
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	child = c.vec.WithLabelValues(c.text(k)...)
	c.known[k] = child
	return child
}

// forget removes the series for whose key gone is true.
func (c *children[K, C]) forget(gone func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.known {
		if gone(k) {
			c.vec.DeleteLabelValues(c.text(k)...)
			delete(c.known, k)
		}
	}
}

func (c *children[K, C]) each(f func(K)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for k := range c.known {
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
