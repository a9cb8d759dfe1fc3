# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up .venv from the lock first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
OUTPUT ?= demo
# The main job on a dump of your own: make demo DUMP=path/to/pages-articles.xml.bz2
DUMP ?=

.PHONY: help setup demo test test-all mutate lint format docs lock clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed  ## Make .venv with the exact versions of requirements.lock

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no python3.11 found; install Python 3.11 or run make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "make: the lock is for Python 3.11, and $(PYTHON) is another version; run make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Text -> shards -> pretraining -> sweep -> report, on this machine, in minutes
	$(BIN)/tokenfree demo --output "$(OUTPUT)" $(if $(DUMP),--dump "$(DUMP)")

test: setup  ## The tests that run in minutes
	$(BIN)/python -m pytest -m "not slow"

test-all: setup  ## All tests
	$(BIN)/python -m pytest

mutate: setup  ## An hour or two: make 500 small mistakes in the equations, and see which ones no test notices
	$(BIN)/python -m benchmarks.mutation

lint: setup  ## Style, types, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: setup  ## Format the code and sort the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup  ## Draw the picture of the house, and build the site of docs/ into site/
	$(BIN)/python -m docs.tools.draw_house
	$(BIN)/mkdocs build --strict --quiet

lock:  ## Resolve pyproject.toml anew into requirements.lock
	rm -rf build/lock-venv && $(PYTHON) -m venv build/lock-venv
	build/lock-venv/bin/pip install --quiet torch==2.13.0 setuptools wheel ".[s3,huggingface,tracking,dev]"
	{ echo "# Exact versions for Python 3.11, written by 'make lock'."; \
	  build/lock-venv/bin/pip freeze --all --exclude tokenfree --exclude pip | sed 's/+cpu$$//'; } > requirements.lock

clean:  ## Remove what the targets above made, except .venv
	rm -rf build site demo .pytest_cache .ruff_cache .hypothesis
