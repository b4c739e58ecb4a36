package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
)

// cell is one kind of load.
type cell struct {
	name        string
	about       string
	model       string
	concurrency int  // clients; with a rate, the most
	rate        int  // requests per second on a schedule; 0 = each client asks again as soon as it is answered
	prompt      int  // bytes of the prompt; 0 = two short messages
	tokens      int  // of each answer
	stream      bool // the answers are streams
	paced       bool // tokens have a pace: events count as they come, and their times are taken
	h2          bool // clients speak HTTP/2 to the proxies
	held        int  // streams that are held open while memory is read; such a cell has no other load
	unit        string

	// bound and stretch are the most that evenkeel may use, 0 = not set: CPU time per unit as a multiple of nginx's;
	// for streams that are held, KB of memory for each.
	bound, stretch float64
}

var cells = []cell{
	{name: "small", about: "answers of 16 tokens, not streamed, 64 connections that ask again at once", model: "fast",
		concurrency: 64, tokens: 16, unit: "request", bound: 1.9, stretch: 1.6},
	{name: "rate", about: "the same at 1,000 requests a second, sent at random times that do not wait for answers", model: "fast",
		concurrency: 256, rate: 1000, tokens: 16, unit: "request", bound: 2.8, stretch: 2.4},
	{name: "paced", about: "200 streams of 100 tokens at a time, 10 ms between tokens", model: "paced",
		concurrency: 200, tokens: 100, stream: true, paced: true, unit: "event", bound: 1.4, stretch: 1.25},
	{name: "unhurried", about: "200 streams of 50 tokens at a time, 30 ms between tokens, which leaves the machine idle at times", model: "unhurried",
		concurrency: 200, tokens: 50, stream: true, paced: true, unit: "event"},
	{name: "burst", about: "streams of 20 tokens as fast as possible, 32 at a time", model: "fast",
		concurrency: 32, tokens: 20, stream: true, unit: "event", bound: 1.25, stretch: 1.1},
	{name: "prompt-64k", about: "prompts of 64 KB, answers of 16 tokens, not streamed, 16 connections", model: "fast",
		concurrency: 16, prompt: 64_000, tokens: 16, unit: "request", bound: 1.5, stretch: 1.0},
	{name: "prompt-1m", about: "prompts of 1 MB, answers of 16 tokens, not streamed, 8 connections", model: "fast",
		concurrency: 8, prompt: 1_000_000, tokens: 16, unit: "request", bound: 1.4, stretch: 1.1},
	{name: "tls-small", about: "small with TLS on both sides of the proxies", model: "fast-tls",
		concurrency: 64, tokens: 16, unit: "request"},
	{name: "tls-paced", about: "paced with TLS on both sides of the proxies", model: "paced-tls",
		concurrency: 200, tokens: 100, stream: true, paced: true, unit: "event"},
	{name: "h2-small", about: "small from 8 clients that speak HTTP/2 over TLS; to the engines, and directly, HTTP/1.1 without TLS", model: "fast-h2",
		concurrency: 64, tokens: 16, h2: true, unit: "request"},
	{name: "h2-paced", about: "paced from 8 clients that speak HTTP/2 over TLS; to the engines, and directly, HTTP/1.1 without TLS", model: "paced-h2",
		concurrency: 200, tokens: 100, stream: true, paced: true, h2: true, unit: "event"},
	{name: "held-2k", about: "2,000 streams open at a time, 2 s between tokens", model: "slow",
		held: 2_000, tokens: 1000, stream: true, unit: "stream", bound: 40, stretch: 28},
	{name: "held-20k", about: "20,000 streams open at a time, 2 s between tokens", model: "slow",
		held: 20_000, tokens: 1000, stream: true, unit: "stream", bound: 40, stretch: 28},
}

// model is a model of the mock engines; how fast they are, and how they are reached, is a matter of the model here.
type model struct {
	name       string
	interToken time.Duration
	clientTLS  bool // between clients and proxies
	engineTLS  bool // between proxies and engines
}

// held is the model whose streams are held open.
var held = model{name: "slow", interToken: 2 * time.Second}

var models = []model{
	held,
	{name: "fast"},
	{name: "paced", interToken: 10 * time.Millisecond},
	{name: "fast-tls", clientTLS: true, engineTLS: true},
	{name: "unhurried", interToken: 30 * time.Millisecond},
	{name: "paced-tls", interToken: 10 * time.Millisecond, clientTLS: true, engineTLS: true},
	{name: "fast-h2", clientTLS: true},
	{name: "paced-h2", interToken: 10 * time.Millisecond, clientTLS: true},
}

func cellNames(cells []cell) []string {
	var names []string
	for _, c := range cells {
		names = append(names, c.name)
	}
	return names
}

// modelsOf returns the models that cells ask for.
func modelsOf(cells []cell) []model {
	var used []model
	for _, m := range models {
		for _, c := range cells {
			if c.model == m.name {
				used = append(used, m)
				break
			}
		}
	}
	return used
}

const path = "/v1/chat/completions"

// body is the body of the request of a cell.
func (c cell) body() []byte {
	stream := ""
	if c.stream {
		stream = `,"stream":true,"stream_options":{"include_usage":true}`
	}
	question := "Which way does the wind blow at the harbour today, and should we set sail?"
	if c.prompt > 0 {
		question = prose(c.prompt)
	}
	return fmt.Appendf(nil, `{"model":%q,"max_tokens":%d%s,"temperature":0.7,"messages":[`+
		`{"role":"system","content":"You are a helpful assistant. Answer briefly."},`+
		`{"role":"user","content":"%s"}]}`, c.model, c.tokens, stream, question)
}

// prose is text of at least n bytes as it stands in JSON, with an escape about every 25 bytes as in text with line ends
// and quotations.
func prose(n int) string {
	const passage = `The harbour pilot said:\n\"Keep her head to the wind,\"\nand the crew of the \"Even Keel\"\nhauled in the sheets.\tNobody\nspoke of the reef again.\n\n`
	return strings.Repeat(passage, n/len(passage)+1)
}

// request is the request of a cell, as it goes over the wire in HTTP/1.1, with these header fields more.
func (c cell) request(fields ...string) []byte {
	body := c.body()
	return fmt.Appendf(nil, "POST "+path+" HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n"+
		"Authorization: Bearer sk-bench\r\nContent-Type: application/json\r\nUser-Agent: evenkeel-bench\r\n"+
		"Content-Length: %d\r\n%s\r\n%s", len(body), strings.Join(fields, ""), body)
}

// events is how many events a stream has: the role, the tokens, the finish, the usage, the end marker.
func (c cell) events() int { return c.tokens + 4 }

// units is how many units an answer counts for once it is complete.
func (c cell) units() int {
	if c.stream {
		return c.events()
	}
	return 1
}

// answers are the bodies that the engines give to the request of a cell; they give the same each time.
type answers [][]byte

// ask learns what each engine answers.
func (b *bed) ask(ctx context.Context, c cell) (answers, error) {
	var all answers
	to := b.places[c.model][direct]
	for _, engine := range to.addresses {
		conn := newConn(engine, to.tls, c.request())
		err := conn.ask(ctx, nil)
		conn.close()
		if err != nil {
			return nil, fmt.Errorf("cell %s: engine %s: %w", c.name, engine, err)
		}
		if n := bytes.Count(conn.body, []byte("\n\n")); c.stream && (n != c.events() || !bytes.HasSuffix(conn.body, []byte("data: [DONE]\n\n"))) {
			return nil, fmt.Errorf("cell %s: engine %s: a stream of %d events, want %d and [DONE]", c.name, engine, n, c.events())
		}
		all = append(all, conn.body)
	}
	return all, nil
}

// find returns which engine gave an answer, −1 if none did.
func (a answers) find(body []byte) int {
	for i, want := range a {
		if bytes.Equal(body, want) {
			return i
		}
	}
	return -1
}
