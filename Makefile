# permille: `make demo` and `make test` start from a bare Debian 12. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
export CARGO_TERM_QUIET ?= true
# Without it each of hundreds of processes compiles its libraries anew, which is most of the time that it takes to start.
unexport PYTHONDONTWRITEBYTECODE
# A machine behind an intercepting proxy trusts more than these tools' own lists.
export UV_SYSTEM_CERTS ?= 1
export NODE_EXTRA_CA_CERTS ?= /etc/ssl/certs/ca-certificates.crt

PYTHON_PACKAGES := proto mesh services/allocator services/controller services/coverage services/decoder cli client callers/alertmanager
VPT_PLUGIN := services/controller/src/permille/controller/vpt/libpermille-vpt.so
BPF_PROGRAM := services/controller/src/permille/controller/bpf/switches.bpf.o
HTML_TEMPLATE := cli/src/permille/cli/html/report.html
RUST := $(shell git ls-files services/decoder/ptcore 2>/dev/null | grep -E '\.(rs|toml|lock|pyi)$$')
PROTO := $(wildcard proto/permille/*/v1/*.proto) proto/generate.py
PYTEST := tests/run
# A file stays with one worker: its tests share a mesh. Most of their time is waiting.
WORKERS := -q -n 3 --dist loadfile
# Two targets at once, where nothing is timed: often a compiler has work for one processor alone.
AT_ONCE = $(MAKE) -j2 --output-sync=target

.PHONY: help setup demo bench-coverage test test-all test-images test-kubernetes apiserver store-server test-rust test-vpt fuzz lint lint-python lint-rust \
	check-proto kmod test-services test-kmod test-kmod-brief test-kmod-long test-kmod-trace clean
help: ## This list
	@grep -hE '^[a-z0-9%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.installed $(VENV)/.proto $(VENV)/.ptcore $(VPT_PLUGIN) $(BPF_PROGRAM) $(HTML_TEMPLATE) ## Everything that the command and the services need

$(VENV)/.system: deploy/install-system
	deploy/install-system run
	mkdir -p $(VENV) && touch $@

$(VENV)/.locked: requirements.lock | $(VENV)/.system
	[ -x $(VENV)/bin/python ] || /usr/bin/python3 -m venv $(VENV)
	[ -x $(BIN)/uv ] || $(BIN)/python -m pip install -q 'uv>=0.11'
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements.lock
	touch $@

$(VENV)/.installed: $(VENV)/.locked $(PYTHON_PACKAGES:%=%/pyproject.toml)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q --no-deps --no-build-isolation $(PYTHON_PACKAGES:%=-e ./%)
	touch $@

$(VENV)/.proto: $(PROTO) | $(VENV)/.installed
	$(BIN)/python proto/generate.py 2>/dev/null
	touch $@

# Behind .installed: uv changes the environment for one caller at a time.
$(VENV)/.ptcore: $(RUST) | $(VENV)/.installed
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install -q --no-deps --no-build-isolation -e ./services/decoder/ptcore
	touch $@

$(VPT_PLUGIN): $(wildcard services/controller/vpt/*.[ch] services/controller/vpt/*/*.[ch] services/controller/vpt/include/permille/*.h) | $(VENV)/.system
	$(MAKE) -s -C services/controller/vpt

$(BPF_PROGRAM): $(wildcard services/controller/bpf/*) | $(VENV)/.system
	$(MAKE) -s -C services/controller/bpf

$(HTML_TEMPLATE): $(wildcard cli/html/*) | $(VENV)/.locked
	cli/html/build

demo: setup ## Trace a real redis-server under load for half a second and show what it did
	$(BIN)/python bench/demo.py

bench-coverage: setup ## How much of the truth short recordings tell, alone and merged, and what stopping in time saves
	deploy/install-system bench
	PYTHONPATH=bench $(BIN)/python bench/coverage

bench-%: setup ## One bench of bench/: bench-vpt, bench-e2e, bench-decoder (wants libipt-dev)
	PYTHONPATH=bench $(BIN)/python bench/$*

lint: lint-python lint-rust ## Formatting, types, layers, contracts

lint-python: $(VENV)/.installed $(VENV)/.proto
	$(BIN)/ruff check -q .
	$(BIN)/ruff format -q --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	cd proto && $(BIN)/buf lint

# As a release, and behind the module: with what its build leaves of compilers' plugins and of zstd.
lint-rust: | $(VENV)/.ptcore
	cd services/decoder/ptcore && cargo fmt --check && cargo clippy --release --workspace --all-targets -- -D warnings

test: ## All tests that end within 15 minutes
	deploy/install-system test
	$(AT_ONCE) setup lint test-vpt test-rust
	$(PYTEST) -m "not slow" $(WORKERS)

test-vpt: | $(VENV)/.system
	$(MAKE) -s -C services/controller/vpt check

test-rust: | $(VENV)/.system
	cd services/decoder/ptcore && cargo test --workspace --tests --profile checked

test-all: ## The slow suites, the kernel module and the images too: all but test-kmod-long
	$(MAKE) --no-print-directory test-services
	$(MAKE) --no-print-directory test-kmod
	$(MAKE) --no-print-directory test-images

test-services: ## The slow suites too
	deploy/install-system test-all
	$(AT_ONCE) setup apiserver store-server lint test-vpt test-rust fuzz
	$(PYTEST) -m "not slow" $(WORKERS)
	$(PYTEST) -m slow --timeout 1800 --ignore tests/images $(WORKERS)

test-images: setup ## Each image is built by Debian's tools, and permille runs from them
	deploy/install-system test-all
	$(PYTEST) -m slow --timeout 1800 tests/images

test-kubernetes: ## The Helm chart and permille-operator on a real API server; both, and the chart's S3 server, are built first, for minutes
	deploy/install-system test-all
	$(AT_ONCE) setup apiserver store-server
	$(PYTEST) -m slow --timeout 1800 $(WORKERS) tests/kubernetes

apiserver:
	tests/kubernetes/apiserver/build kube-apiserver
	tests/kubernetes/apiserver/build helm

store-server:
	deploy/images/store/build

fuzz: | $(VENV)/.system ## More than a million mutated inputs into the layers that read bytes of others
	services/decoder/ptcore/fuzz/run all 200000

kmod: ## The kernel module, against the kernel headers that are installed
	$(MAKE) -s -C kmod

test-kmod: setup ## The kernel module in a machine of its own: Debian's kernels in QEMU, two CPUs; KERNEL=6.12 for all of it on that
	deploy/install-system kmod
	$(MAKE) -s -C kmod parts

test-kmod-brief: setup ## Of it what every change to the module goes through: sessions, and that what is recorded is what ran
	deploy/install-system kmod-brief
	$(MAKE) -s -C kmod brief

test-kmod-long: ## The same, a million random calls and a thousand loads; and all of it on a kernel that looks for mistakes
	deploy/install-system kmod-debug
	$(MAKE) -s -C kmod test-long test-debug

test-kmod-trace: setup ## permille up and permille trace --backend kmod in a machine of its own, held against what ran
	deploy/install-system kmod
	$(MAKE) -s -C kmod test-trace

clean: ## Remove everything that was built
	rm -rf $(VENV) proto/src/permille services/decoder/ptcore/target
	$(MAKE) -s -C services/controller/vpt clean
	$(MAKE) -s -C services/controller/bpf clean
	$(MAKE) -s -C kmod clean
