package realengine

import (
	"io"
	"strings"
	"testing"

	"evenkeel/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestServersAreIndependent(t *testing.T) {
	servers := Start(t, 2, Options{Slots: 1, Context: 256, APIKey: "sk-engine"})
	for i, s := range servers {
		if n, err := s.BusySlots(); err != nil || n != 0 {
			t.Errorf("server %d: %d busy slots, %v", i, n, err)
		}
	}
	resp, err := post(t.Context(), servers[0].URL+"/v1/completions", `{"prompt":"the sea","max_tokens":5}`)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 401 || !strings.Contains(string(body), "authentication_error") {
		t.Errorf("without a key: %s %s", resp.Status, body)
	}
	servers[0].Kill()
	if _, err := servers[0].BusySlots(); err == nil {
		t.Error("a killed server still answers")
	}
	if _, err := servers[1].BusySlots(); err != nil {
		t.Errorf("the other server: %v", err)
	}
	url := servers[0].URL
	servers[0].Restart(t)
	if _, err := servers[0].BusySlots(); err != nil || servers[0].URL != url {
		t.Errorf("restarted at %s, was at %s: %v", servers[0].URL, url, err)
	}
}
