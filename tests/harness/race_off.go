//go:build !race

package harness

// raceDetector says whether the tests run with -race; the balancer is built
// the same way.
const raceDetector = false
