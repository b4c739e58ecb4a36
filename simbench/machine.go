package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// machine says where and when a run took place, and how fast it was.
type machine struct {
	date, machine, commit string
	requests, perMinute   float64
}

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

func (b *bench) machine(tables []*table) machine {
	m := machine{date: time.Now().UTC().Format("2006-01-02"), commit: "unknown"}
	cpu := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil { // elsewhere the architecture must do
		if found := modelName.FindSubmatch(text); found != nil {
			cpu = string(found[1])
		}
	}
	m.machine = fmt.Sprintf("%s, %d cores, %s/%s, %s", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil { // an export has no repository
		m.commit = strings.TrimSpace(string(out))
	}
	spent := 0.0
	for _, t := range tables {
		m.requests += float64(t.requests)
		spent += t.seconds
	}
	if spent > 0 {
		m.perMinute = m.requests / spent * 60
	}
	return m
}
