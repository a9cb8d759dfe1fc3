# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up .venv from the lock first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
OUTPUT ?= demo
# The main job on a dump of your own: make demo DUMP=path/to/pages-articles.xml.bz2
DUMP ?=

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED := $(PIP) --no-deps --require-hashes -r
# Without CUDA libraries: make setup TORCH="--index-url INDEX", the index of CPU builds that pytorch.org names
TORCH ?=
VERSIONS := 3.11 3.12 3.13
UV := build/uv/bin/uv
RESOLVE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header $(UPGRADE) pyproject.toml
# CUDA's libraries come with the torch of PyPI, so the lock installs with any build of torch. The markers are the same
# everywhere: Linux and CPython, see [tool.uv] in pyproject.toml.
TIDY = sed -i -E "/^(cuda|nvidia|triton)/,/[^\\]$$/d; s/ and \(\(platform_machine.*\)\) / /; s/ ; python_full_version < '3.14'( and implementation_name != 'PyPy')? / /"

# Else each of the hundreds of processes that the tests start compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup develop demo test test-all test-engines test-kubernetes test-images test-lowest test-newest test-versions mutate lint format docs lock audit clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(VENV)/.installed  ## Make .venv with all extras, in the exact versions of requirements.lock

develop: $(VENV)/.developing  ## The same, and what tests, types and docs need

$(VENV)/.installed: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no python3.11 found; install Python 3.11 or run make PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(if $(TORCH),$(TORCH) --no-deps) $(shell grep -o '^torch==[0-9.]*' requirements.lock)
	$(LOCKED) requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed requirements-dev.lock
	$(LOCKED) requirements-dev.lock
	@touch $@

demo: setup  ## Text -> shards -> pretraining -> sweep -> report, on this machine, in minutes
	$(BIN)/tokenfree demo --output "$(OUTPUT)" $(if $(DUMP),--dump "$(DUMP)")

test: develop  ## The tests that run in minutes
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow"

test-all: develop  ## All tests
	$(BIN)/python -m pytest

test-engines: develop  ## Preprocessing on Flink, Spark and Prism, fetched into the cache (Java 17, Maven, Go): an hour or so
	$(BIN)/python -m tools.engines.fetch
	$(BIN)/python -m pytest -m engines tests/engines

test-kubernetes: develop  ## The manifests on an API server of Kubernetes with KubeRay's operator, built into the cache (Go, Maven)
	$(BIN)/python -m tools.kubernetes.fetch
	$(BIN)/python -m pytest tests/infra -m "not images"

test-images: develop  ## Build the images with buildah on a Debian of debootstrap, and compare pip freeze with the locks (root)
	$(BIN)/python -m pytest tests/infra -m images

test-lowest: RESOLUTION := lowest-direct
test-lowest: $(UV)  ## The quick tests with the oldest versions that pyproject.toml allows, in an environment in build/
test-newest: RESOLUTION := highest
test-newest: $(UV)  ## The same with the newest versions
test-lowest test-newest:
	$(UV) pip compile --quiet --upgrade --resolution $(RESOLUTION) --python $(PYTHON) --extra all -o build/$@.txt pyproject.toml
	$(UV) venv --quiet --seed --clear --python $(PYTHON) build/$@
	$(UV) pip install --quiet --python build/$@ -c build/$@.txt --extra all --group dev -r pyproject.toml -e .
	build/$@/bin/python -m pytest -n 2 --dist loadfile -m "not slow"

test-versions:  ## The quick tests on each version of Python that is installed, in environments in build/
	for version in $(VERSIONS); do \
	  python$$version --version > /dev/null 2>&1 || { echo "python$$version: not installed"; continue; }; \
	  $(MAKE) test PYTHON=python$$version VENV=build/python$$version || exit 1; \
	done

mutate: develop  ## An hour or two: make 500 small mistakes in the equations, and see which ones no test notices
	$(BIN)/python -m tools.mutation

lint: develop  ## Style, formatting, types, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m tools.docs.words

format: develop  ## Format the code and sort the imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: develop  ## Draw the architecture, list keys, commands and signatures, write schemas, and build the site of docs/ into site/
	$(BIN)/python -m tools.docs.draw_architecture
	$(BIN)/python -m tools.docs.list_keys
	$(BIN)/python -m tools.docs.list_commands
	$(BIN)/python -m tools.docs.list_signatures
	$(BIN)/python -m tools.docs.write_schemas
	$(BIN)/python -m tools.docs.address
	$(BIN)/mkdocs build --strict --quiet

lock: $(UV)  ## Resolve pyproject.toml into the locks for Python 3.11 to 3.13; with UPGRADE=--upgrade to newer versions
	$(RESOLVE) --extra all -o requirements.lock
	$(RESOLVE) -c requirements.lock --extra all --group dev -o requirements-dev.lock
	$(RESOLVE) -c requirements.lock --extra train --extra s3 --extra gcs -o infra/images/train.lock
	$(RESOLVE) --extra beam --extra dataflow --extra s3 --extra gcs -o infra/images/beam.lock
	$(TIDY) requirements.lock requirements-dev.lock infra/images/train.lock infra/images/beam.lock

$(UV):
	$(PYTHON) -m venv build/uv && build/uv/bin/pip install --quiet uv

audit:  ## Look up the packages of the locks among known vulnerabilities (pip-audit, in an environment in build/; asks PyPI)
	test -x build/audit-venv/bin/pip-audit || { $(PYTHON) -m venv build/audit-venv && build/audit-venv/bin/pip install --quiet pip-audit; }
	build/audit-venv/bin/pip-audit --strict --no-deps --disable-pip --requirement requirements.lock --requirement requirements-dev.lock

clean:  ## Remove what the targets above made, except .venv
	rm -rf build site demo .pytest_cache .ruff_cache .hypothesis
