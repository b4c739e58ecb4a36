package proxy

import (
	"net/http"
	"testing"
)

func TestShed(t *testing.T) {
	f := func(s Shortage, length int64, refused bool) {
		t.Helper()
		p := &Proxy{Options: Options{Shortage: func() Shortage { return s }}}
		e := p.shed(&http.Request{ContentLength: length})
		if (e != nil) != refused || refused && (e.Status != http.StatusServiceUnavailable || e.Code != codeMemory) {
			t.Errorf("shortage %d, a body of %d bytes: %+v, want a refusal: %v", s, length, e, refused)
		}
	}
	for _, length := range []int64{-1, 0, 1, smallBody, smallBody + 1} {
		f(Enough, length, false)
		f(Short, length, length < 0 || length > smallBody)
		f(VeryShort, length, true)
	}
	if e := (&Proxy{}).shed(&http.Request{ContentLength: 1 << 40}); e != nil {
		t.Errorf("without a guard: %+v", e)
	}
}
