package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// balancer is a running evenkeel.
type balancer struct {
	process *process
	admin   string // base URL of its admin listener
	client  *http.Client

	counted int64 // bytes of its log that have been looked at
	lines   int   // of exchanges in them
}

var listenLine = regexp.MustCompile(`\bmsg=listening for=(\w+) addr=(\S+)`)

// evenkeelConfig names the engines, and the certificates where there is TLS. All else is as it is without configuration:
// metrics, the ring for explain and a line in the log for each exchange are on.
func (b *bed) evenkeelConfig(served []model) string {
	var text strings.Builder
	text.WriteString("listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n")
	if served[0].clientTLS {
		fmt.Fprintf(&text, "tls: {cert: %q, key: %q}\n", b.certs.cert, b.certs.key)
	}
	text.WriteString("endpoints:\n")
	for _, m := range served {
		for i, engine := range b.places[m.name][direct].addresses {
			scheme, more := "http", ""
			if m.engineTLS {
				scheme, more = "https", fmt.Sprintf(", tls: {ca: %q}", b.certs.ca)
			}
			fmt.Fprintf(&text, "  %s-%d: {url: \"%s://%s\"%s}\n", m.name, i+1, scheme, engine, more)
		}
	}
	for _, m := range served {
		if m.name == held.name { // more at one time than evenkeel sends to a deployment whose size it does not know
			fmt.Fprintf(&text, "models:\n  %s:\n    providers:\n", m.name)
			for i := range engines {
				fmt.Fprintf(&text, "      - {name: %s-%d, limits: {tokens: 1000000000}}\n", m.name, i+1)
			}
		}
	}
	return text.String()
}

// startEvenkeel runs an evenkeel for models that clients reach in the same manner and adds it to their places.
func (b *bed) startEvenkeel(ctx context.Context, served []model, name string) (*balancer, error) {
	var secure *tls.Config
	if served[0].clientTLS {
		secure = b.certs.client
	}
	file := filepath.Join(b.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(b.evenkeelConfig(served)), 0o600); err != nil {
		return nil, err
	}
	p, err := b.launch(name, b.binary(), "serve", "--config", file)
	if err != nil {
		return nil, err
	}
	lines, err := p.await(ctx, listenLine, 2)
	if err != nil {
		return nil, err
	}
	e := &balancer{process: p, client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableCompression: true}}}
	for _, line := range lines {
		switch line[1] {
		case "admin":
			e.admin = "http://" + line[2]
		case "data":
			for _, m := range served {
				b.places[m.name][evenkeel] = way{addresses: []string{line[2]}, tls: secure, proxy: p, balancer: e}
			}
		}
	}
	return e, eventually(ctx, p, func() bool {
		d, err := e.deployments()
		return err == nil && len(d) == engines*len(served)
	})
}

// get fetches a path of the admin listener.
func (e *balancer) get(path string) (status int, body []byte, err error) {
	res, err := e.client.Get(e.admin + path)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

// getJSON fetches a path of the admin listener that must be there.
func (e *balancer) getJSON(path string, into any) error {
	status, body, err := e.get(path)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s%s: status %d: %.200s", e.admin, path, status, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s%s: %w: %.200s", e.admin, path, err, body)
	}
	return nil
}

// deployment is what is used of the admin listener's /deployments.
type deployment struct {
	ID       string `json:"id"`
	InFlight int    `json:"in_flight"`
	Totals   struct {
		Faults uint64 `json:"faults"`
	} `json:"totals"`
}

func (e *balancer) deployments() ([]deployment, error) {
	var all struct {
		Deployments []deployment `json:"deployments"`
	}
	err := e.getJSON("/deployments", &all)
	return all.Deployments, err
}

// metric is a line of the metrics: a counter with its labels.
var metric = regexp.MustCompile(`(?m)^(\w+)\{([^}]*)\} (\S+)$`)

// sum adds up the series of a metric that have all of the labels, written as NAME="VALUE".
func sum(metrics []byte, name string, labels ...string) (int64, error) {
	total := 0.0
	for _, m := range metric.FindAllSubmatch(metrics, -1) {
		if string(m[1]) != name {
			continue
		}
		has := true
		for _, l := range labels {
			has = has && bytes.Contains(append([]byte(","), m[2]...), []byte(","+l))
		}
		if !has {
			continue
		}
		value, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %q: %w", m[0], err)
		}
		total += value
	}
	return int64(total), nil
}

// logged returns how many exchanges the log tells of so far.
func (e *balancer) logged() (int, error) {
	file, err := os.Open(e.process.log)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	piece := make([]byte, 1<<20)
	for {
		n, err := file.ReadAt(piece, e.counted)
		whole := piece[:bytes.LastIndexByte(piece[:n], '\n')+1]
		e.lines += bytes.Count(whole, []byte(" msg=exchange "))
		e.counted += int64(len(whole))
		switch {
		case err == io.EOF:
			return e.lines, nil
		case err != nil:
			return 0, err
		case len(whole) == 0:
			return 0, fmt.Errorf("%s: a line of more than %d bytes", e.process.log, len(piece))
		}
	}
}
