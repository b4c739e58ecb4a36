//go:build race

package overload

// overhead is how many times the memory the program takes if it is built with the race detector.
const overhead = 4
