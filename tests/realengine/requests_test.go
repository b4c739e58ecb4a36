package realengine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

func chatRequest(text string, tokens int, streamed bool) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%v,"messages":[{"role":"user","content":%q}]}`, ModelName, tokens, streamed, text)
}

func post(ctx context.Context, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	return (&http.Client{Timeout: time.Minute}).Do(req)
}

// answer returns status, content type and body, with ids and times blanked.
func answer(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := post(t.Context(), url, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	text := fmt.Sprintf("%d %s\n%s", resp.StatusCode, resp.Header.Get("Content-Type"), got)
	return varying.ReplaceAllString(text, "$1…")
}

var varying = regexp.MustCompile(`("id":"|"item_id":"|"(?:created|created_at|completed_at)":|"timings":)(?:[a-z]+[-_]\w+|\d+|\{[^}]*\})`)

// stream is how a streamed chat ended.
type stream struct {
	done   bool  // [DONE] came
	failed bool  // an error event came
	err    error // the stream ended in neither way
}

// readStream reads a streamed chat to its end and calls content at the first
// content, or at the end if none came.
func readStream(t *testing.T, base, body string, content func()) (s stream) {
	content = sync.OnceFunc(content)
	defer content()
	resp, err := post(t.Context(), base+"/v1/chat/completions", body)
	if err != nil {
		return stream{err: err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return stream{err: errors.New(resp.Status)}
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "data: [DONE]":
			s.done = true
		case strings.HasPrefix(line, `data: {"error"`):
			s.failed = true
		case strings.Contains(line, `"content":"`):
			content()
		}
	}
	if !s.done && !s.failed {
		s.err = fmt.Errorf("no [DONE] and no error event: %w", lines.Err())
	}
	return s
}
