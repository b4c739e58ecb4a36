package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

// post gives an order; headers come in pairs.
func post(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, nil)
	r.Host = "127.0.0.1:8081"
	r.RemoteAddr = "127.0.0.1:4444"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOrders(t *testing.T) {
	type given struct {
		kind, name string
		order      route.Override
		by         string
	}
	var last given
	h := newConsole(Options{Order: func(kind, name string, o route.Override, by string) error {
		if name == "nobody" {
			return errors.New(`no endpoint is called "nobody"`)
		}
		last = given{kind, name, o, by}
		return nil
	}})
	f := func(query string, status int, want given, contains string) {
		t.Helper()
		last = given{}
		w := post(h, ordersPath+query)
		if w.Code != status || last != want || !strings.Contains(w.Body.String(), contains) {
			t.Errorf("POST %s: %d %s, order %+v; want %d with %q, order %+v", query, w.Code, w.Body, last, status, contains, want)
		}
	}
	f("?deployment=gpu-1/m&order=drain", 200, given{"deployment", "gpu-1/m", route.Drain, "127.0.0.1:4444"}, `"deployments"`)
	f("?endpoint=gpu-1&order=disable", 200, given{"endpoint", "gpu-1", route.Disable, "127.0.0.1:4444"}, "")
	f("?credential=gpu-1&order=reset", 200, given{"credential", "gpu-1", route.ForgetFailure, "127.0.0.1:4444"}, "")
	f("?endpoint=gpu-1&order=force", 200, given{"endpoint", "gpu-1", route.Force, "127.0.0.1:4444"}, "")
	f("?endpoint=gpu-1&order=automatic&format=text", 200, given{"endpoint", "gpu-1", route.Automatic, "127.0.0.1:4444"}, "6 deployments")
	f("", 400, given{}, "deployment, endpoint, credential")
	f("?endpoint=gpu-1", 400, given{}, "order is missing: automatic, drain, disable, force, reset")
	f("?endpoint=gpu-1&order=halt", 400, given{}, `unknown order \"halt\"`)
	f("?endpoint=gpu-1&deployment=gpu-1/m&order=drain", 400, given{}, "not about several")
	f("?endpoint=a&endpoint=b&order=drain", 400, given{}, "endpoint is given 2 times")
	f("?model=m&order=drain", 400, given{}, `\"model\" is not understood`)
	f("?endpoint=nobody&order=drain", 404, given{}, "no endpoint is called")
}

// TestOrdersAreNotTakenFromPages: a page in the operator's browser must not be able to give one.
func TestOrdersAreNotTakenFromPages(t *testing.T) {
	taken := false
	h := newConsole(Options{Order: func(string, string, route.Override, string) error { taken = true; return nil }})
	for _, origin := range []string{"https://example.com", "null", "http://127.0.0.1:9999"} {
		if w := post(h, ordersPath+"?endpoint=gpu-1&order=drain", "Origin", origin); w.Code != http.StatusForbidden || taken {
			t.Errorf("from a page of %s: %d, taken %v", origin, w.Code, taken)
		}
	}
	for _, path := range []string{"/deployments", "/explain", "/"} {
		if w := post(h, path); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	if w := get(h, ordersPath+"?endpoint=gpu-1&order=drain"); w.Code != http.StatusMethodNotAllowed || taken {
		t.Errorf("GET gave an order: %d, %v", w.Code, taken)
	}
	if w := post(newConsole(Options{}), ordersPath+"?endpoint=gpu-1&order=drain"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("without anybody to take orders: %d", w.Code)
	}
}

// TestForgottenPost: an order with GET is refused, with how it is given; so is what looks like a choice of deployments.
func TestForgottenPost(t *testing.T) {
	h := newConsole(Options{Order: func(string, string, route.Override, string) error { t.Error("taken"); return nil }})
	f := func(h http.Handler, path string, status int, allow string, contains ...string) {
		t.Helper()
		w := get(h, path)
		if w.Code != status || w.Header().Get("Allow") != allow {
			t.Errorf("GET %s: %d, Allow %q: %s", path, w.Code, w.Header().Get("Allow"), w.Body)
		}
		for _, want := range contains {
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("GET %s: %s without %q", path, w.Body, want)
			}
		}
	}
	f(h, ordersPath+"?endpoint=gpu-1&order=drain&format=text", 405, "GET, HEAD, POST", "with POST", "nothing was done", "curl -X POST 'http://127.0.0.1:8081/admin/deployments?endpoint=gpu-1&order=drain'")
	f(h, "/deployments?deployment=gpu-1%2Fm&order=drain", 405, "GET, HEAD", "/admin/deployments?deployment=gpu-1%2Fm&order=drain'")
	f(h, ordersPath+"?order=%27%0a", 405, "GET, HEAD, POST", "order=%27%0A'")
	f(newConsole(Options{}), ordersPath+"?endpoint=gpu-1&order=drain", 405, "GET, HEAD", "not taken here")
	f(h, ordersPath+"?endpoint=gpu-1", 400, "", `\"endpoint\" is not understood`, "format")
	f(h, "/deployments?format=text&x=1", 400, "", `"x" is not understood`)
	f(h, ordersPath+"?format=text", 200, "", "6 deployments")
}

// TestOrdersAreSeen: one that no state shows is told beside it, at the deployment and at its endpoint.
func TestOrdersAreSeen(t *testing.T) {
	forced := route.BreakerView{Order: route.Force}
	v := route.View{
		Deployments: []route.DeploymentView{
			{ID: "a/m", Endpoint: "a", URL: "http://a", Model: "m", Member: true, Weight: 1, Breaker: forced},
			{ID: "b/m", Endpoint: "b", URL: "http://b", Model: "m", Member: true, Weight: 1},
			{ID: "c/m", Endpoint: "c", URL: "http://c", Model: "m", Member: true, Weight: 1, Breaker: route.BreakerView{State: route.Drained, Order: route.Drain}},
		},
		Scopes: []route.ScopeView{
			{Kind: route.EndpointScope, Name: "b", URL: "http://b", Breaker: forced},
			{Kind: route.EndpointScope, Name: "c", URL: "http://c"},
		},
	}
	f := describe(v, func(string, string) bool { return false }, start)
	for i, want := range []string{"ok, forced by order", "ok, endpoint forced by order", "drained"} {
		if got := f.state(&f.Deployments[i]); got != want {
			t.Errorf("%s: %q, want %q", f.Deployments[i].ID, got, want)
		}
	}
	if text := f.Text(); !strings.Contains(text, "endpoint b   ok, forced by order") && !strings.Contains(text, "endpoint b  ok, forced by order") {
		t.Errorf("text: %s", text)
	}
	for i, want := range []string{`"order":"force"`, "", `"order":"drain"`} {
		text, err := json.Marshal(f.Deployments[i].Breaker)
		if err != nil || !strings.Contains(string(text), want) || want == "" && strings.Contains(string(text), "order") {
			t.Errorf("%s: %s, %v", f.Deployments[i].ID, text, err)
		}
	}
}

func TestStatesInWords(t *testing.T) {
	now := start
	f := func(b route.BreakerView, want string) {
		t.Helper()
		d := describeBreaker(&b)
		if got := d.words(now); got != want {
			t.Errorf("%v: %q, want %q", b.State, got, want)
		}
	}
	until := now.Add(12 * time.Second)
	f(route.BreakerView{}, "ok")
	f(route.BreakerView{State: route.Degraded, Reason: "slow", Share: 0.01}, "degraded (slow), gets 1 % of its share")
	f(route.BreakerView{State: route.SlowStart, Share: 0.25, Until: until}, "slow start, gets 25 % of its share")
	f(route.BreakerView{State: route.HalfOpen, Reason: "timeout"}, "on trial (timeout)")
	f(route.BreakerView{State: route.Cooling, Reason: "rate_limited", Until: until}, "left alone (rate_limited) for 12.0 s")
	f(route.BreakerView{State: route.Open, Reason: "server_error", Until: until}, "out (server_error) for 12.0 s")
	f(route.BreakerView{Order: route.Force}, "ok, forced by order")
	f(route.BreakerView{State: route.Drained}, "drained")
	f(route.BreakerView{State: route.Disabled}, "disabled")
	if len(route.States()) != 8 {
		t.Error("there are states without words")
	}
}

// TestEveryStateCanBeRead by a program: the JSON of each has its name and its share.
func TestEveryStateCanBeRead(t *testing.T) {
	for _, s := range route.States() {
		b := describeBreaker(&route.BreakerView{State: s, Share: 1.0 / 3})
		text, err := json.Marshal(b)
		if err != nil || !strings.Contains(string(text), `"state":"`+s.String()+`"`) || !strings.Contains(string(text), `"share":0.333`) {
			t.Errorf("%v: %s, %v", s, text, err)
		}
	}
}

// TestUsedUpLimitsAreSeen: a deployment that takes nothing because a minute's requests are used up does not look well.
func TestUsedUpLimitsAreSeen(t *testing.T) {
	v := route.View{
		Deployments: []route.DeploymentView{
			{ID: "a/m", Endpoint: "a", URL: "http://a", Model: "m", Member: true, Weight: 1, FullFor: 10400 * time.Millisecond},
			{ID: "b/m", Endpoint: "b", URL: "http://b", Model: "m", Member: true, Weight: 1},
		},
		Scopes: []route.ScopeView{{Kind: route.EndpointScope, Name: "b", URL: "http://b", FullFor: time.Second}},
	}
	f := describe(v, func(string, string) bool { return false }, start)
	for i, want := range []string{"ok, at its limit per minute for 10.4 s", "ok, endpoint at its limit per minute for 1.00 s"} {
		if got := f.state(&f.Deployments[i]); got != want {
			t.Errorf("%s: %q, want %q", f.Deployments[i].ID, got, want)
		}
	}
	if got := f.Deployments[0].FullFor; got != 10.4 {
		t.Errorf("in JSON %v, want 10.4", got)
	}
}

// TestForesightIsTold where it is known, also if it is 0.
func TestForesightIsTold(t *testing.T) {
	f := func(x route.Foresight, want ...string) {
		t.Helper()
		v := route.View{Deployments: []route.DeploymentView{{ID: "a/m", Model: "m", Foresight: x}}}
		text, err := json.Marshal(describe(v, func(string, string) bool { return false }, start).Deployments[0])
		if err != nil {
			t.Fatal(err)
		}
		got := regexp.MustCompile(`"(forecast_error|regret_seconds)":[^,]*`).FindAllString(string(text), -1)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", x, got, want)
		}
	}
	f(route.Foresight{})
	f(route.Foresight{Answers: 1, Error: 0.25}, `"forecast_error":0.25`)
	f(route.Foresight{Answers: 2, Error: 0.25, Choices: 1}, `"forecast_error":0.25`, `"regret_seconds":0`)
	f(route.Foresight{Answers: 2, Error: 0.25, Choices: 1, Regret: 1500 * time.Millisecond}, `"forecast_error":0.25`, `"regret_seconds":1.5`)
}
