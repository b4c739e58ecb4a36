//go:build !unix

package upstream

import "testing"

func full(t *testing.T) string {
	t.Skip("no way to fill a listener's queue")
	return ""
}

func descriptors() (int, bool) { return 0, false }
