// Package scale asks what many replicas of the balancer before many deployments come to: which part of the deployments each should know, how
// evenly the load spreads then, and what replicas that know the same do at the same time. Its figures are in docs/scale.md.
//
// Evenkeel has no setting for subsets: a replica that is to know a part of the deployments is given that part as its pool.
package scale

import (
	"math"
	"math/rand/v2"

	"evenkeel/internal/sim"
)

// Aperture returns the deployments that a replica knows under deterministic aperture, and their weights (after Finagle's deterministic
// aperture). Deployments lie on a ring, each as long as the others, and so do the starts of replicas. A replica knows what lies
// between its start and that of the m-th replica after it, and weighs what lies there in part by that part. m is the least that gives
// it size deployments. Each point of the ring is known to m replicas: deployments get equal loads, whatever the numbers divide by.
//
// All replicas must agree on the order of deployments, on the number of replicas and on their numbers, from 0.
func Aperture(replica, replicas, deployments, size int) []sim.Member {
	windows := (size*replicas + deployments - 1) / deployments
	if windows >= replicas {
		return everything(deployments)
	}
	// In parts of a ring of replicas × deployments: a deployment is as many long as there are replicas, and the other way round.
	from, to := replica*deployments, (replica+windows)*deployments
	var members []sim.Member
	for i := from / replicas; i*replicas < to; i++ {
		overlap := min((i+1)*replicas, to) - max(i*replicas, from)
		weight := float64(overlap) / float64(replicas)
		if at := i % deployments; len(members) > 0 && at == members[0].Deployment { // all the way round
			members[0].Weight += weight
		} else {
			members = append(members, sim.Member{Deployment: at, Weight: weight})
		}
	}
	return members
}

func everything(deployments int) []sim.Member {
	members := make([]sim.Member, deployments)
	for i := range members {
		members[i] = sim.Member{Deployment: i, Weight: 1}
	}
	return members
}

// Random returns size deployments that a replica draws for itself.
func Random(seed uint64, replica, deployments, size int) []sim.Member {
	r := rand.New(rand.NewPCG(seed, uint64(replica)))
	members := make([]sim.Member, 0, size)
	for _, i := range r.Perm(deployments)[:size] {
		members = append(members, sim.Member{Deployment: i, Weight: 1})
	}
	return members
}

// Coverage is how subsets share the deployments, if each replica gets as much traffic as the others and spreads it by weight.
type Coverage struct {
	Members     float64 // that a replica knows, in the mean
	Least, Most float64 // load of a deployment, in multiples of the mean
	CV          float64 // of the load of deployments
	Unknown     int     // deployments that no replica knows
	Moved       float64 // part of what replicas know that is new to them when one replica more joins
}

// Cover works out the coverage of subsets, given by replica and number of replicas.
func Cover(replicas, deployments int, subset func(replica, replicas int) []sim.Member) Coverage {
	load := make([]float64, deployments)
	c := Coverage{Least: math.Inf(1)}
	moved, known := 0, 0
	for replica := range replicas {
		before := map[int]bool{}
		sum := 0.0
		members := subset(replica, replicas)
		for _, m := range members {
			sum += m.Weight
			before[m.Deployment] = true
		}
		for _, m := range members {
			load[m.Deployment] += m.Weight / sum
		}
		c.Members += float64(len(members)) / float64(replicas)
		for _, m := range subset(replica, replicas+1) {
			known++
			if !before[m.Deployment] {
				moved++
			}
		}
	}
	c.Moved = float64(moved) / float64(known)
	mean := float64(replicas) / float64(deployments)
	for _, l := range load {
		l /= mean
		c.Least, c.Most = min(c.Least, l), max(c.Most, l)
		c.CV += (l - 1) * (l - 1) / float64(deployments)
		if l == 0 {
			c.Unknown++
		}
	}
	c.CV = math.Sqrt(c.CV)
	return c
}
