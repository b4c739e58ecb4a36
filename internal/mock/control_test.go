package mock

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func do(t *testing.T, c *http.Client, method, url, body string, status int) string {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Fatalf("%s %s: %d %s, want %d", method, url, resp.StatusCode, b, status)
	}
	return string(b)
}

func TestOwnControl(t *testing.T) {
	e := start(t, Config{Name: "alpha", APIKey: "sesame", InterToken: time.Millisecond})
	c := client(t)
	got := do(t, c, "POST", e.URL()+"/mock/fault", `{"kind":"stall","after":3}`, 200)
	if s := decode[state](t, got); s.Name != "alpha" || s.Fault.Kind != "stall" || s.Fault.After != 3 || !s.Up || !s.Config.NeedsKey || s.Config.InterToken != Duration(time.Millisecond) {
		t.Errorf("%s", got)
	}
	if strings.Contains(got, "sesame") {
		t.Errorf("the state shows the key: %s", got)
	}
	do(t, c, "POST", e.URL()+"/mock/fault", `{"kind":"stal"}`, 400)
	if s := decode[state](t, do(t, c, "GET", e.URL()+"/mock/state", "", 200)); s.Fault.Kind != "stall" {
		t.Error("a bad fault replaced a good one")
	}
	if s := decode[state](t, do(t, c, "DELETE", e.URL()+"/mock/fault", "", 200)); s.Fault != nil || s.Stats.Started != 0 || len(s.Stats.Statuses) != 0 {
		t.Errorf("%+v", s)
	}
	do(t, c, "PATCH", e.URL()+"/mock/fault", "", 405)
	do(t, c, "GET", e.URL()+"/mock/else", "", 404)
}

func TestSharedControl(t *testing.T) {
	a, b := start(t, Config{Name: "alpha"}), start(t, Config{Name: "beta"})
	control := httptest.NewServer(Control([]*Engine{a, b}))
	defer control.Close()
	c := client(t)
	_, port, _ := net.SplitHostPort(b.Addr())

	do(t, c, "POST", control.URL+"/engines/"+port+"/fault", `{"kind":"refuse"}`, 200)
	if _, err := net.Dial("tcp", b.Addr()); err == nil {
		t.Error("b does not refuse")
	}
	all := decode[[]state](t, do(t, c, "GET", control.URL+"/engines", "", 200))
	if len(all) != 2 || all[0].Name != "alpha" || all[0].Fault != nil || all[1].URL != b.URL() || all[1].Fault.Kind != "refuse" {
		t.Errorf("%+v", all)
	}
	do(t, c, "DELETE", control.URL+"/engines/beta/fault", "", 200)
	mustPost(t, c, b.URL()+"/v1/chat/completions", chatBody(""), 200)

	if s := decode[state](t, do(t, c, "POST", control.URL+"/engines/alpha/kill", "", 200)); s.Up {
		t.Errorf("%+v", s)
	}
	if _, err := net.Dial("tcp", a.Addr()); err == nil {
		t.Error("a was not killed")
	}
	if s := decode[state](t, do(t, c, "POST", control.URL+"/engines/alpha/restart", "", 200)); !s.Up {
		t.Errorf("%+v", s)
	}
	do(t, c, "POST", control.URL+"/engines/alpha/restart", "", 409)
	do(t, c, "GET", control.URL+"/engines/gamma", "", 404)
	mustPost(t, c, a.URL()+"/v1/chat/completions", chatBody(""), 200)
}
