package sim

import "math/rand/v2"

// purpose is what random numbers are drawn for. Each has a stream of its own, so that more draws for one do not shift another.
type purpose uint64

const (
	forArrivals purpose = iota + 1
	forLengths
	forSessions
	forPolicies  // the seeds of requests' decisions
	forBalancers // which balancer a request comes to
	forService   // how long a queue serves a request
	forTicks     // the spread of timestamps that a trace has rounded
	forCopies    // what copies of a trace are shifted by and salted with
	forBytes     // how many bytes a prompt's tokens are
)

// stream returns the random numbers of a seed for a purpose.
func stream(seed uint64, p purpose) *rand.Rand { return rand.New(source(seed, p)) }

// source is what a stream draws from. A copy of it draws the same.
func source(seed uint64, p purpose) *rand.PCG {
	return rand.NewPCG(mix(seed), mix(mix(seed)+uint64(p)))
}

// mix scrambles a number (the finaliser of SplitMix64): seeds that differ in a bit give streams that have nothing in common.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
