package engine

import (
	"math/rand/v2"
	"testing"
)

// TestTree compares the tree with a map, also for equal hashes after different blocks.
func TestTree(t *testing.T) {
	type key struct {
		parent int32
		hash   uint64
	}
	r := rand.New(rand.NewPCG(1, 0))
	tree, model := newTree(), map[key]int32{}
	continued := map[int32]int{}
	alive := []int32{0}
	for range 50_000 {
		k := key{alive[r.IntN(len(alive))], r.Uint64N(40)}
		want := model[k]
		if got := tree.find(k.parent, k.hash); got != want {
			t.Fatalf("find(%d, %d) = %d, want %d", k.parent, k.hash, got, want)
		}
		switch {
		case want == 0 && len(alive) < 2000:
			i := tree.insert(k.parent, k.hash)
			model[k] = i
			continued[k.parent]++
			alive = append(alive, i)
		case want != 0 && continued[want] == 0:
			tree.remove(want)
			delete(model, k)
			continued[k.parent]--
			for n, i := range alive {
				if i == want {
					alive[n] = alive[len(alive)-1]
					alive = alive[:len(alive)-1]
					break
				}
			}
		}
		if tree.len != len(model) {
			t.Fatalf("%d blocks, want %d", tree.len, len(model))
		}
	}
	if len(tree.heads) == 64 || tree.tabled == 0 {
		t.Errorf("%d heads, %d blocks in the table: the test did not reach its growth", len(tree.heads), tree.tabled)
	}
}
