# `make demo` and `make test` set everything up by themselves; nothing has to be prepared by hand.

PYTHON ?= python3
VENV   ?= .venv
# The release the figures in README.md were made with. `make demo TORCH=torch` takes the newest one.
TORCH  ?= torch==2.13.0

BIN        := $(VENV)/bin
EMBEDTRAIN := $(BIN)/embedtrain
READY      := $(VENV)/ready

.PHONY: help demo test test-slow bench lint types format scifact setup clean

help:
	@echo "make demo       the whole pipeline on a small part of SciFact, at most 6 minutes on 2 cores"
	@echo "make scifact    the benchmark on all of SciFact, at most 60 minutes on 2 cores"
	@echo "make test       lint, types and every fast test"
	@echo "make test-slow  the tests that take minutes"
	@echo "make bench      speed and memory beside other libraries, on a quiet machine"
	@echo "make clean      remove what the recipes built"

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11 ..."; exit 1; }
	@echo "setting up in $(VENV): 1 to 2 minutes, and 1.6 GB or more"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[offline,dev]"
	@touch $@

demo: $(READY)
	@$(MAKE) --no-print-directory -f recipes/demo.mk EMBEDTRAIN="$(abspath $(EMBEDTRAIN))"

scifact: $(READY)
	@$(MAKE) --no-print-directory -f recipes/scifact.mk EMBEDTRAIN="$(abspath $(EMBEDTRAIN))"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

test: lint types
	$(BIN)/pytest -m "not slow" -n 2 --dist worksteal

# Every benchmark runs, and the command fails where one missed a target.
bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@failed=0; for script in tests/benchmarks/bench_*.py; do $(BIN)/python $$script || failed=1; done; exit $$failed

test-slow: $(READY)
	$(BIN)/pytest -m slow

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build
