# Everything runs in .venv; nothing is installed elsewhere.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := demo
RUN    := $(BIN)/aps-rag
LARGE  := benchmarks/.runs/large

export DAGSTER_DISABLE_TELEMETRY = 1

.DEFAULT_GOAL := help
.PHONY: help install demo ui test test-all torture bench bench-peers bench-full bench-search lint format lock clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## the project and what it needs, in .venv

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local,dev]'
	@touch $(STAMP)

$(DEMO)/facility.yaml: | $(STAMP)
	$(RUN) demo write --out $(DEMO)

demo: $(STAMP) $(DEMO)/facility.yaml  ## a demo facility, its nine sources synced, three questions answered
	$(RUN) sync -c $(DEMO)/facility.yaml
	$(RUN) demo tour --out $(DEMO)

ui: $(STAMP) $(DEMO)/facility.yaml  ## the Dagster UI on the demo facility, or on CONFIG=facility.yaml
	$(RUN) ui -c $(or $(CONFIG),$(DEMO)/facility.yaml)

test: $(STAMP)  ## the tests, in minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

test-all: $(STAMP)  ## the tests with the long ones
	$(BIN)/python -m pytest -n 2 --dist worksteal

torture: $(STAMP)  ## kills at every place and at random, ten thousand histories of live services: some hours
	APS_RAG_KILLS=$(or $(KILLS),200) $(BIN)/python -m pytest -n 2 --dist worksteal tests/test_torture.py tests/torture
	APS_RAG_HISTORIES=$(or $(HISTORIES),10000) $(BIN)/python -m pytest -n 2 --dist worksteal tests/test_live_histories.py

# EMBEDDING=test:hash-384 measures all but the encoder; BENCH_RUN keeps runs and their reports apart.
BENCH = $(BIN)/python -m benchmarks.run $(if $(EMBEDDING),--embedding $(EMBEDDING)) $(if $(BENCH_RUN),--run $(BENCH_RUN))
PEER_SIZES := 3000

bench: $(STAMP)  ## speed and memory at 3,000 and 15,000 records, half an hour; goes on where it was broken off
	$(BENCH) --sizes 3000,15000

bench-peers: $(STAMP)  ## two other systems beside this one at 3,000 records or PEER_SIZES=3000,15000; half an hour or two
	$(BENCH) --sizes $(PEER_SIZES) --peers --peer-sizes $(PEER_SIZES)

bench-full: $(STAMP)  ## as bench, and 150,000 records, some hours; EMBEDDING=test:hash-384 leaves the encoder out
	$(BENCH) --sizes 3000,15000,150000

bench-search: $(STAMP) $(LARGE)/made.json  ## search at 200,000 chunks, half an hour; makes them from the demo if they are not there
	$(BIN)/python -m benchmarks.search_latency $(LARGE) $(DEMO)/truth.json --json $(LARGE).json

$(LARGE)/made.json: | $(STAMP) $(DEMO)/.stamp-synced
	$(BIN)/python -m benchmarks.large_home $(DEMO)/home $(LARGE)

$(DEMO)/.stamp-synced: | $(DEMO)/facility.yaml
	env -u APS_RAG_HOME $(RUN) sync -c $(DEMO)/facility.yaml
	@touch $@

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:  ## renew constraints.txt from the ranges of pyproject.toml
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[local,dev]'
	( echo '# Exact versions that `make` installs; renewed by `make lock`.'; \
	  .lock-venv/bin/python -m pip freeze --exclude-editable | sed -E 's/\+[A-Za-z0-9.]+//; /^-e /d; / @ /d' ) > constraints.txt
	rm -rf .lock-venv

clean:  ## remove the environment, the demo facility and caches
	-$(RUN) graph down -c $(DEMO)/facility.yaml 2>/dev/null
	rm -rf $(VENV) .lock-venv $(DEMO) benchmarks/.venvs benchmarks/.runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
