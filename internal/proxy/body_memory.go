package proxy

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// defaultBodyMemory is Generation.BodyMemory's default, in bytes.
	defaultBodyMemory = 1 << 30
	// smallBody is the size of a buffer up to which a body counts as small, in bytes: prompts of some 15,000 tokens.
	smallBody = 80 << 10

	// Buffers up to largestClass are used again. They come in classes that double, a quarter above powers of two,
	// since a prompt of "64 KB" has a few bytes more.
	smallestClass = 5 << 10
	classes       = 11
	largestClass  = smallestClass << (classes - 1)

	// firstAnnounced is the most that is set aside for a body before it comes, in bytes.
	firstAnnounced = 4 * smallestClass
	// trust is how many times what has come is set aside for the rest of what was announced: all of a prompt of 1 MB once the
	// first read has brought 8 KB.
	trust = 160
	// stride is by what a buffer grows while its end is not known.
	stride = 4
)

// buffer is memory for one body. Its owner alone may use it.
type buffer struct {
	room  []byte
	class int // −1: too large to be kept
}

// buffers hold what was given back, by class, until the garbage collector takes it.
var buffers [classes]sync.Pool

// classOf returns the smallest class of at least size bytes, −1 if there is none.
func classOf(size int64) int {
	if size > largestClass {
		return -1
	}
	return bits.Len64(uint64(max(size-1, 0) / smallestClass))
}

// nextSize returns the size of the buffer to read on with, when held bytes of buffer hold what came of a body, have bytes,
// and it will have at most most bytes; announced says that it should have just as many. What is only announced costs no
// memory, and a large body is copied seldom: announced ones go over one step to their full size.
func nextSize(held, have, most int64, announced bool) int64 {
	switch {
	case held >= most:
		return held
	case announced && have >= most/trust:
		return most
	case announced && held == 0:
		return min(most, firstAnnounced)
	case have < held:
		return held
	case announced:
		return min(max(most/trust, 2*held), trust*have)
	case held == 0:
		return min(most, smallestClass)
	}
	return min(most, stride*held)
}

// bodyMemory counts the memory that bodies take, over all requests. Safe for concurrent use.
type bodyMemory struct {
	taken atomic.Int64 // bytes in use
	fresh atomic.Int64 // bytes that came from the heap since collect has run
}

// take returns a buffer of at least size bytes for a body that has own bytes already, which it gives back then; nil if more
// than bound bytes would be taken meanwhile. The last sixteenth is for small bodies, so that a few large ones do not turn
// everything else away. A body alone gets what it needs: else the largest that is allowed would never fit.
func (m *bodyMemory) take(size, own, bound int64) *buffer {
	class := classOf(size)
	if class >= 0 {
		size = smallestClass << class
	}
	if size > smallBody {
		bound -= bound / 16
	}
	for {
		taken := m.taken.Load()
		if taken > bound-size && taken > own {
			return nil
		}
		if m.taken.CompareAndSwap(taken, taken+size) {
			break
		}
	}
	if class >= 0 {
		if b, _ := buffers[class].Get().(*buffer); b != nil {
			return b
		}
	}
	m.collect(size, bound)
	return &buffer{room: make([]byte, size), class: class}
}

// collect keeps what was in use small beside bound. The garbage collector alone would let it grow to a multiple of
// what is in use (GOGC), though it is the bulk of the heap, and quick to collect, since there are no pointers in it.
func (m *bodyMemory) collect(size, bound int64) {
	if m.fresh.Add(size) > bound/8 {
		m.fresh.Store(size)
		runtime.GC()
	}
}

// give takes a buffer back, which nobody uses any more.
func (m *bodyMemory) give(b *buffer) {
	m.taken.Add(-int64(len(b.room)))
	if b.class >= 0 {
		buffers[b.class].Put(b)
	}
}

// tight reports whether more than half of bound is taken.
func (m *bodyMemory) tight(bound int64) bool { return m.taken.Load() > bound/2 }

// bodyMemory returns the bound on the memory of all bodies, in bytes.
func (g *Generation) bodyMemory() int64 {
	if g.BodyMemory > 0 {
		return g.BodyMemory
	}
	return defaultBodyMemory
}

// BodyMemory returns how many bytes the bodies of running requests take: the capacity of their buffers. Safe for
// concurrent use.
func (p *Proxy) BodyMemory() int64 { return p.bodies.taken.Load() }
