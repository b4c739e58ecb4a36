package fixture

import (
	crand "crypto/rand" // want import of crypto/rand
	"hash/maphash"      // want import of hash/maphash
	old "math/rand"     // want import of math/rand
	"math/rand/v2"
	. "math/rand/v2"
	r "math/rand/v2"
)

func draw(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	_ = rng.IntN(3) + rng.Perm(2)[0]
	_ = NewZipf(rng, 2, 1, 9).Uint64()
	_ = rand.IntN(3)        // want math/rand/v2.IntN
	_ = r.Float64()         // want math/rand/v2.Float64
	_ = Uint64()            // want math/rand/v2.Uint64
	f := rand.Shuffle       // want math/rand/v2.Shuffle
	f(1, func(i, j int) {}) //
	_ = r.N(10)             // want math/rand/v2.N
	_ = old.Intn(3)         // want math/rand.Intn
	_ = crand.Text()        // want crypto/rand.Text
	_ = maphash.MakeSeed()  // want hash/maphash.MakeSeed
}
