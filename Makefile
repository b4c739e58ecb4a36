.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
BIN     ?= bin/evenkeel
PGO     ?= cmd/evenkeel/release.pgo
GOBUILD  = CGO_ENABLED=0 go build -pgo=$(PGO) -trimpath -ldflags '-s -w -X evenkeel/internal/cli.version=$(VERSION)'
TOOL    := go tool -modfile=tools/go.mod

# Packages with budgets of allocations.
BUDGETS := $(addprefix ./internal/,app ledger llm mock proxy strategy telemetry upstream)

# Packages with simulations, each in one goroutine: the race detector would find nothing and take eight times as long.
SIMULATED := $(addprefix ./internal/,exchange route sim sim/fit sim/study strategy)

comma     := ,
PGOCELLS  := small,paced,burst,prompt-64k,tls-small
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
GODIRS     = $(wildcard bench cmd examples internal simbench tests)

.PHONY: help build cross setup lint test fuzz bench bench-peers profile pgo soak drill simbench simbench-quick routerbench image fmt clean $(PLATFORMS:%=dist/%)

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/evenkeel, a static binary (VERSION=, BIN=, GOOS and GOARCH are heeded); PGO=off builds faster what is some 10 % slower
	$(GOBUILD) -o $(BIN) ./cmd/evenkeel

cross: $(PLATFORMS:%=dist/%) ## build for every platform into dist/
$(PLATFORMS:%=dist/%): dist/%:
	GOOS=$(*D) GOARCH=$(*F) $(GOBUILD) -o dist/evenkeel-$(*D)-$(*F)$(if $(findstring windows,$*),.exe) ./cmd/evenkeel

setup: ## install what the tests need (does nothing when it is there)
	@scripts/setup

lint: ## check the format, go vet, staticcheck
	@unformatted=$$(gofmt -l $(GODIRS)); test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	$(TOOL) staticcheck ./...

test: PGO = off
test: setup lint cross ## everything CI checks: set-up, lint, builds for all platforms, all tests with the race detector (TESTFLAGS=)
	go test -run 'Alloc|Cost' $(TESTFLAGS) $(BUDGETS) # allocation budgets: the race detector would count its own
	go test $(TESTFLAGS) $(SIMULATED) # the simulations among them run without the race detector only
	go test -count=1 $(if $(CI),,-skip TestRed) ./internal/drill # alone too: the rows of evenkeel drill; in CI also that each fails where its defence is missing
	go test -count=1 -run TestSimulatorAgrees ./tests/realengine # alone too, and without the race detector: it compares times
	go test -run 'Simulate(Examples|Fit)' $(TESTFLAGS) ./internal/cli # as the simulations
	go test -count=1 ./tests/router # alone too: real engines need the processors
	go test -count=1 ./tests/simulation # alone too: it compares times
	go test -count=1 ./tests/soak # alone, for SOAK (15s): it needs the whole machine, and without the race detector
	$(TOOL) gotestsum --format pkgname --format-hide-empty-pkg -- -race -shuffle=on -timeout 6m $(TESTFLAGS) ./...

fuzz: ## run every fuzz target for FUZZTIME (10s) each
	scripts/fuzz $(FUZZTIME)

bench: setup ## compare with a direct connection and with nginx, takes 20 minutes (BENCHFLAGS=, for example --write=bench/RESULTS.md)
	GOFLAGS=-pgo=$(PGO) go run -pgo=off ./bench $(BENCHFLAGS)

bench-peers: setup ## compare with HAProxy, Portkey, LiteLLM and the routers of SGLang and vLLM too, takes 30 minutes, and up to 10 to install them (BENCHFLAGS=, for example --write=bench/PEERS.md)
	scripts/peers
	GOFLAGS=-pgo=$(PGO) go run -pgo=off ./bench --peers=all $(BENCHFLAGS)

profile: ## profile evenkeel under one load of the benchmark, into .cache/profile/CELL (CELL=small or several, as in small,held-2k)
	go run ./bench --profile=.cache/profile --seconds=10 --cells=$(or $(CELL),small)

pgo: setup ## make the profile again by which release builds are optimised, under five loads of the benchmark
	go run ./bench --profile=.cache/pgo --seconds=10 --cells=$(PGOCELLS)
	go tool pprof -proto $(patsubst %,.cache/pgo/%/cpu.pprof,$(subst $(comma), ,$(PGOCELLS))) > $(PGO)

soak: build ## keep evenkeel fully busy for DURATION (10m): what it costs must stay level; then run the drill with its long rows, an hour
	SOAK=$(or $(DURATION),10m) go test -count=1 -v -timeout 0 ./tests/soak
	$(BIN) drill --all

drill: build ## break things around evenkeel and see what holds, takes 2 minutes (DRILLFLAGS=, for example --all or --row=R7)
	$(BIN) drill $(DRILLFLAGS)

simbench: ## compare routing policies in the simulator and write docs/routing-quality.md, takes 3 hours and goes on where it was stopped (TRACES=folder of the public traces, SIMFLAGS=)
	go run ./simbench --write=docs/routing-quality.md $(if $(TRACES),--traces=$(TRACES)) $(SIMFLAGS)

simbench-quick: ## the same for a few rows, takes 10 minutes
	go run ./simbench --quick --write=docs/routing-quality.md $(if $(TRACES),--traces=$(TRACES)) $(SIMFLAGS)

routerbench: setup ## compare routing before real llama.cpp servers, and with nginx, HAProxy and the routers of SGLang and vLLM before mock engines, and write docs/routing-real.md, takes an hour (RUNS=5)
	scripts/peers
	ROUTERBENCH=$(CURDIR)/docs/routing-real.md RUNS=$(RUNS) go test -tags routerbench -count=1 -v -timeout 0 -run TestRouterBench ./tests/router

image: ## build the container image evenkeel:VERSION with podman or docker
	@tool=$$(command -v podman || command -v docker) || { echo "make image needs podman or docker (Debian package: podman)"; exit 1; }; \
	set -x; $$tool build --file Containerfile --build-arg VERSION=$(VERSION) --tag evenkeel:$(VERSION) .

fmt: ## format all Go code
	gofmt -w $(GODIRS)

clean: ## remove what make has built, and what setup has installed below this folder
	rm -rf bin dist .cache tests/*/node/node_modules
