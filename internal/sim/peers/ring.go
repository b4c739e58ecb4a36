package peers

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// ring is a consistent-hash ring of deployments.
type ring []point

type point struct {
	hash       uint64
	deployment int
}

// newRing gives each deployment so many places. Rings of other salts are independent.
func newRing(ids []string, places int, salt string) ring {
	var r ring
	for d, id := range ids {
		for i := range places {
			r = append(r, point{xxhash.Sum64String(salt + id + strconv.Itoa(i)), d})
		}
	}
	slices.SortFunc(r, func(a, b point) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// walk calls accept for each deployment once, in the order of the ring from a key on, until it returns true, and returns that
// deployment; -1 if none was accepted.
func (r ring) walk(key uint64, deployments int, accept func(deployment int) bool) int {
	start, _ := slices.BinarySearchFunc(r, key, func(p point, k uint64) int { return cmp.Compare(p.hash, k) })
	refused := make([]bool, deployments)
	for i, left := 0, deployments; i < len(r) && left > 0; i++ {
		d := r[(start+i)%len(r)].deployment
		if refused[d] {
			continue
		}
		if accept(d) {
			return d
		}
		refused[d] = true
		left--
	}
	return -1
}

// scramble makes a key of a block's hash: traces number their blocks, and a ring needs keys that are spread.
func scramble(x uint64) uint64 {
	var b [8]byte
	for i := range b {
		b[i] = byte(x >> (8 * i))
	}
	return xxhash.Sum64(b[:])
}
