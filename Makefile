# `make check` is what CI runs. The first target that needs it makes the virtualenv.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
CODE   = $(wildcard src tests examples)

BENCHMARKS := keyed_process windows cep joins expressions async_io state_size latency soak snapshots recovery kafka
KILLS ?= 50
FAULTS ?= 30
SEED  ?=
WORKERS ?= 3
BASE  ?= HEAD
TREE  ?= .

.PHONY: help setup demo test laws coverage check static format bench compare torture torture-reads torture-ops torture-connectors clean

help:
	@echo "make demo      run the demonstration"
	@echo "make test      run the tests: WORKERS=3"
	@echo "make laws      run the property tests with many more examples"
	@echo "make coverage  how much of src/ the tests run that need no JVM: TREE=another checkout"
	@echo "make check     all that CI checks: style, types, imports, tests"
	@echo "make format    put the code into shape"
	@echo "make bench     run the benchmarks into build/bench/"
	@echo "make compare   is it slower than another commit? BASE=commit"
	@echo "make torture   kill a job again and again: KILLS=50 SEED=n"
	@echo "make torture-reads  kill a job and the server that is asked for its state: KILLS=20 SEED=n"
	@echo "make torture-ops  break a cluster and its storages under two jobs: FAULTS=30 SEED=n"
	@echo "make torture-connectors  kill a job between real servers, and the servers: KILLS=30 SEED=n"
	@echo "make setup     make the virtualenv $(VENV)"
	@echo "make clean     remove what was made"

setup: $(READY)

$(READY): requirements.txt requirements-dev.txt pyproject.toml
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
	  for python in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "Penstock needs Python 3.11 or later, and there is none on the PATH: install one and try again." >&2; exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$found --version)"; \
	  $$found -m venv $(VENV) || { echo "Python's venv module does not work (on Debian: apt install python3-venv)." >&2; exit 1; }; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@PENSTOCK_CLASS_ARCHIVE=on $(BIN)/python -m penstock.executors.spark.probe || true  # so that Spark starts faster in tests
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

# Three workers on two cores: tests wait a lot. What belongs together stays on one worker (tests/spreading.py).
test: $(READY)
	$(BIN)/python tests/second_chance.py -q -n $(WORKERS) --max-worker-restart 0

# 2,000 random examples of each property, others every time; `make test` tries 300, always the same.
laws: $(READY)
	$(BIN)/python -m pytest tests -q -n $(WORKERS) --max-worker-restart 0 -m property --hypothesis-profile laws --timeout 7200

# Lines that run in the processes of the tests; what the tests start (drivers, workers, the command line) is not counted.
coverage: $(READY)
	@mkdir -p build
	cd $(TREE) && PYTHONPATH=src COVERAGE_FILE=$(CURDIR)/build/.coverage $(CURDIR)/$(BIN)/python -m pytest tests -q -n $(WORKERS) \
	  --max-worker-restart 0 -m "not spark and not slow" --timeout 1200 --cov=penstock --cov-report=term:skip-covered \
	  > $(CURDIR)/build/coverage.txt; code=$$?; tail -n 12 $(CURDIR)/build/coverage.txt; exit $$code

check: static test

static: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-cache

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Peers that a benchmark compares with (bytewax, Flink) are installed by it into virtualenvs of their own under build/.
bench: $(READY)
	@mkdir -p build/bench
	@set -e; for name in $(BENCHMARKS); do \
	  echo "== $$name"; $(BIN)/python benchmarks/$$name.py --json build/bench/$$name.json; \
	done

compare: $(READY)
	$(BIN)/python benchmarks/compare.py $(BASE) --json build/bench/compare.json

torture: $(READY)
	$(BIN)/python tests/torture/run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

torture-reads: $(READY)
	$(BIN)/python tests/torture/reads.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

torture-ops: $(READY)
	$(BIN)/python tests/torture/operations/run.py --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

torture-connectors: $(READY)
	$(BIN)/python tests/torture/connectors/run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log artifacts
	git worktree prune 2>/dev/null || true
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
