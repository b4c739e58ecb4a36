//go:build !race

package overload

const overhead = 1
