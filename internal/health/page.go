package health

import (
	"context"
	"io"
	"net/http"

	"evenkeel/internal/upstream"
)

// pages are the paths, by kind, of pages that say whether an engine is well and that cost it nothing.
var pages = map[string]string{
	"vllm":     "/health", // 503 once its engine has died
	"sglang":   "/health", // not /health_generate, which generates
	"llamacpp": "/health", // 503 while it loads
	"tgi":      "/health",
	"ollama":   "/",
	"lmstudio": "/v1/models",
	"triton":   "/v2/health/ready",
}

// maxPage bounds what is read of a page, so that its connection can be used again; in bytes.
const maxPage = 64 << 10

// look asks for an endpoint's page.
func (p *Plan) look(ctx context.Context, e *Endpoint) Result {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	ask := &upstream.Request{Method: http.MethodGet, Path: pages[e.Kind.Name], Header: e.Header}
	res, stop, err := send(ctx, e.Caller, ask)
	if err != nil {
		return lost(ctx, err)
	}
	defer stop()
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxPage))
	switch status := res.StatusCode; {
	case status < 300 && err == nil:
		return Result{Verdict: OK}
	case status == http.StatusNotImplemented || status < 500 && err == nil:
		return Result{Verdict: Unknown, Reason: noPage}
	}
	return Result{Verdict: Failed, Reason: complains}
}
