# Every verb a person or CI needs. `make help` lists them.
# Needs: make, Python 3.11 or newer, and a package registry that pip (or uv) can reach.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.noetl-ray-installed

SEEDS ?= 2000
FROM ?= 0
MINUTES ?= 5
SEED ?= 0

# Folders that a checkout may lack are left out instead of failing.
FAST_TESTS = $(wildcard tests/unit tests/simulation tests/golden) $(wildcard tests/test_*.py)
SLOW_TESTS = $(wildcard tests/conformance tests/contract tests/cluster tests/chaos)
TYPED = noetl_ray actors placement $(if $(wildcard bench/*.py),bench)
BENCHES = $(filter-out bench/_%.py bench/__init__.py,$(wildcard bench/*.py))

.PHONY: help
help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(STAMP) ## start everything here, run the demo playbook, show the results, stop everything
	$(BIN)/noetl-ray demo

.PHONY: demo-spark
demo-spark: $(STAMP) ## the same with a playbook whose steps run on Spark (about two minutes)
	$(BIN)/noetl-ray demo --spark

.PHONY: check
check: $(STAMP) ## lint, types, import rules and the tests that need no server (under a minute)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(addprefix -p ,$(TYPED))
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q -n 2 $(FAST_TESTS)

.PHONY: test
test: check ## all of check, 2 000 simulated seeds, then contract, cluster and chaos tests (starts NATS, Postgres and Ray)
	$(BIN)/python -m tests.simulation.run --seeds 2000
	$(if $(SLOW_TESTS),$(BIN)/python -m pytest -q $(SLOW_TESTS))

.PHONY: fmt
fmt: $(STAMP) ## format and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(STAMP) ## run every benchmark; each prints one JSON line
	@for file in $(BENCHES); do module=$${file%.py}; $(BIN)/python -m $${module//\//.}; done

.PHONY: simulate
simulate: $(STAMP) ## the whole runtime with seeded faults on all cores: make simulate SEEDS=100000 [FROM=0]
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) --from $(FROM)

.PHONY: chaos
chaos: $(STAMP) ## kill, stop and fill a real set at random while it works, then judge: make chaos MINUTES=10 [SEED=1]
	@$(BIN)/python -m tests.chaos.long --minutes $(MINUTES) --seed $(SEED)

# The stamp makes a second call instant. uv is used when it is there and works; pip otherwise.
$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no python3 found; install Python 3.11 or newer" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than 3.11; try: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "installing into $(VENV) (first time takes a few minutes)"
	@if command -v uv >/dev/null && \
		{ test -x $(BIN)/python || uv venv --quiet --seed --python "$(PYTHON)" $(VENV); } && \
		uv pip install --quiet --python $(BIN)/python -r requirements.lock; then :; \
	else \
		test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV); \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock; \
	fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
