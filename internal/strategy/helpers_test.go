package strategy

import (
	"strings"
	"testing"
	"time"

	"evenkeel/internal/route"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func build(tb testing.TB, name string) route.Strategy {
	tb.Helper()
	s, err := New(name, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// deployment describes id with a scope for its endpoint.
func deployment(id string, weight float64) route.Deployment {
	endpoint, model, _ := strings.Cut(id, "/")
	url := "http://" + endpoint
	return route.Deployment{
		ID: id, Endpoint: endpoint, URL: url, Model: model, Weight: weight,
		Scopes: []route.Scope{{Kind: route.EndpointScope, Name: endpoint, URL: url}},
	}
}

func adopt(tb testing.TB, r *route.Router, specs ...route.PoolSpec) {
	tb.Helper()
	if _, err := r.Adopt(start, specs); err != nil {
		tb.Fatal(err)
	}
}
