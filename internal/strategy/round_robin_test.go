package strategy

import (
	"fmt"
	"strings"
	"testing"

	"evenkeel/internal/route"
)

// TestRoundRobinGoesInOrder: from anywhere on.
func TestRoundRobinGoesInOrder(t *testing.T) {
	c := newClient(t, build1(t, "round_robin", equal(4)...))
	first := int(c.pick().Deployment().ID[1] - '0')
	for i := first + 1; i < first+41; i++ {
		l := c.pick()
		if want := fmt.Sprintf("e%d/m", i%4); l.Deployment().ID != want {
			t.Fatalf("pick %d is %s, want %s", i, l.Deployment().ID, want)
		}
		if i%3 > 0 { // load does not matter
			c.success(l)
		}
	}
}

// TestRoundRobinReplicasAreNotInStep: those that start together begin at different deployments, by the seed of their first request.
func TestRoundRobinReplicasAreNotInStep(t *testing.T) {
	counts := map[string]int{}
	for i := range 400 {
		c := newClient(t, build1(t, "round_robin", equal(4)...))
		c.n = uint64(i)
		counts[c.pick().Deployment().ID]++
	}
	for _, d := range equal(4) {
		if n := counts[d.ID]; n < 60 || n > 140 { // 100, 4.6 standard deviations
			t.Errorf("%d of 400 replicas begin with %s", n, d.ID)
		}
	}
}

// TestRoundRobinGoesOnOverAReload: a new fleet does not begin with the first again.
func TestRoundRobinGoesOnOverAReload(t *testing.T) {
	c := newClient(t, build1(t, "round_robin", equal(4)...))
	first := int(c.pick().Deployment().ID[1] - '0')
	for i := first + 1; i < first+41; i++ {
		adopt(t, c.r, route.PoolSpec{Model: "m", Strategy: build(t, "round_robin"), Deployments: equal(4)})
		l := c.pick()
		if want := fmt.Sprintf("e%d/m", i%4); l.Deployment().ID != want {
			t.Fatalf("pick %d is %s, want %s", i, l.Deployment().ID, want)
		}
		c.success(l)
	}
}

// TestRoundRobinDoesNotSkew: when some are out, the neighbour of the missing one does not get its turns; who
// comes back gets one turn, not all that were missed.
func TestRoundRobinDoesNotSkew(t *testing.T) {
	c := newClient(t, build1(t, "round_robin", equal(4)...))
	f := func(picks int, want string, not ...string) {
		t.Helper()
		counts := make([]int, 4)
		var order []string
		for range picks {
			l := c.pick(not...)
			counts[l.Deployment().ID[1]-'0']++
			order = append(order, l.Deployment().ID[:2])
			c.success(l)
		}
		if got := fmt.Sprint(counts); got != want {
			t.Errorf("without %v: %s, want %s: %s", not, got, want, strings.Join(order, " "))
		}
	}
	f(40, "[10 10 10 10]")
	f(30, "[10 0 10 10]", "e1")
	f(30, "[15 0 0 15]", "e1", "e2", "nobody")
}

func TestRoundRobinComebackGetsOneTurn(t *testing.T) {
	c := newClient(t, build1(t, "round_robin", equal(3)...))
	for range 100 {
		c.success(c.pick("e2"))
	}
	var got []string
	for range 6 {
		l := c.pick()
		got = append(got, l.Deployment().Endpoint)
		c.success(l)
	}
	if s := strings.Join(got, " "); s != "e2 e0 e1 e2 e0 e1" && s != "e2 e1 e0 e2 e1 e0" {
		t.Errorf("after e2 came back: %s", s)
	}
}

// TestRoundRobinUnderFlapping: with a random one of five out at every pick, all get the same.
func TestRoundRobinUnderFlapping(t *testing.T) {
	c := newClient(t, build1(t, "round_robin", equal(5)...))
	counts := make([]int, 5)
	for i := range 5000 {
		l := c.pick(fmt.Sprintf("e%d", (i*i+i/7)%5))
		counts[l.Deployment().ID[1]-'0']++
		c.success(l)
	}
	for i, n := range counts {
		if n < 950 || n > 1050 {
			t.Errorf("e%d got %d of 5000, want about 1000: %v", i, n, counts)
		}
	}
}
