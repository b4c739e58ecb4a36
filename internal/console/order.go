package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"evenkeel/internal/route"
)

// ordersPath is where orders are given.
const ordersPath = "/admin/deployments"

// orderKinds are what orders can be about.
var orderKinds = []string{"deployment", route.EndpointScope.String(), route.CredentialScope.String()}

// order answers POST /admin/deployments?KIND=NAME&order=ORDER.
func (c *console) order(w http.ResponseWriter, r *http.Request) {
	kind, name, o, err := readOrder(r.URL.Query())
	if err != nil {
		c.fail(w, r, http.StatusBadRequest, err.Error()+`; for example: curl -X POST 'http://ADMIN`+ordersPath+`?endpoint=gpu-1&order=drain'`)
		return
	}
	if err := c.Order(kind, name, o, orderedBy(r)); err != nil {
		c.fail(w, r, http.StatusNotFound, err.Error()+"; GET "+ordersPath+" lists what there is")
		return
	}
	c.fleet(w, r)
}

// refuseOrder answers an order that is no POST.
func (c *console) refuseOrder(w http.ResponseWriter, r *http.Request) {
	allow, message := "GET, HEAD", "orders are not taken here"
	if c.Order != nil {
		if r.URL.Path == ordersPath {
			allow += ", POST"
		}
		q := r.URL.Query()
		q.Del("format")
		message = fmt.Sprintf("an order is given with POST, and this was %s: nothing was done; curl -X POST 'http://%s%s?%s'",
			r.Method, cmp.Or(clean(r.Host), "ADMIN"), ordersPath, shortened(q.Encode()))
	}
	w.Header().Set("Allow", allow)
	c.fail(w, r, http.StatusMethodNotAllowed, message)
}

func readOrder(q url.Values) (kind, name string, o route.Override, err error) {
	for key, values := range q {
		switch {
		case len(values) != 1:
			return "", "", 0, fmt.Errorf("%s is given %d times", shortened(key), len(values))
		case slices.Contains(orderKinds, key) && kind != "":
			return "", "", 0, fmt.Errorf("one order is about one of %s, not about several", strings.Join(orderKinds, ", "))
		case slices.Contains(orderKinds, key):
			kind, name = key, values[0]
		case key != "order" && key != "format":
			return "", "", 0, fmt.Errorf("%q is not understood: it must be one of %s, and order", shortened(key), strings.Join(orderKinds, ", "))
		}
	}
	if kind == "" {
		return "", "", 0, fmt.Errorf("whom the order is about is missing: one of %s", strings.Join(orderKinds, ", "))
	}
	if !q.Has("order") {
		return "", "", 0, errors.New("order is missing: " + route.OverrideNames())
	}
	o, err = route.ParseOverride(q.Get("order"))
	return kind, name, o, err
}

// orderedBy names who gives an order: by certificate where clients show one, else by address.
func orderedBy(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.String() + " at " + r.RemoteAddr
	}
	return r.RemoteAddr
}
