package console

import "fmt"

// leftWords says why a request was not kept at its home. Times are of what the others have, up to a limit.
var leftWords = map[string]string{
	"out":  "it was not eligible",
	"slow": "%.1f times as long to the first token as at the others, above the limit of %.1f",
	"busy": "%.1f times as much work as at the others, above the limit of %.1f",
}

// what says what a home has of a request.
func (h *Home) what() string {
	switch h.By {
	case "session":
		return "its session"
	case "answer":
		return "the answer that it goes on from"
	}
	return percent(h.CachedShare) + " of its prompt"
}

// left says why a request was not kept at its home, "" if it was, or has none.
func (h *Home) left() string {
	if h == nil || h.Left == "" {
		return ""
	}
	words, known := leftWords[h.Left]
	switch {
	case !known:
		words = clean(h.Left)
	case h.Left != "out":
		words = fmt.Sprintf(words, h.Slowdown, h.Limit)
	}
	return fmt.Sprintf("; not at %s, where %s is: %s", clean(h.Deployment), h.what(), words)
}
