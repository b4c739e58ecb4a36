package config

import "testing"

func TestSameMachine(t *testing.T) {
	f := func(host, listening string, want bool) {
		t.Helper()
		if got := sameMachine(host, listening); got != want {
			t.Errorf("sameMachine(%q, %q) = %v", host, listening, got)
		}
	}
	f("127.0.0.1", "127.0.0.1", true)
	f("localhost", "127.0.0.1", true)
	f("::1", "localhost", true)
	f("gpu-1", "GPU-1", true)
	f("127.0.0.1", "0.0.0.0", true)
	f("localhost", "", true)
	f("::1", "::", true)
	f("0.0.0.0", "127.0.0.1", true)
	f("::ffff:127.0.0.1", "127.0.0.1", true)
	f("127.0.0.2", "127.0.0.1", false)
	f("10.0.0.1", "0.0.0.0", false) // which addresses the machine has is not known here
	f("gpu-1", "0.0.0.0", false)
	f("localhost", "10.0.0.1", false)
	f("10.0.0.1", "127.0.0.1", false)
	f("gpu-1", "127.0.0.1", false)
}
