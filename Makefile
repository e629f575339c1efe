# `make demo` and `make test` work on a fresh machine with Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(wildcard native/*/*) CMakeLists.txt pyproject.toml

WORKERS := --numprocesses auto --maxprocesses 8 --dist loadgroup

.PHONY: help setup shell demo test quick lint format bench docs wheel clean

help:
	@echo "make demo    three hospitals on four local servers, beside the plaintext answer"
	@echo "make quick   the tests that start no process, in about a minute: what to run while you work"
	@echo "make test    all tests"
	@echo "make lint    ruff, mypy and clang-format"
	@echo "make format  write the code as ruff and clang-format want it"
	@echo "make bench   native kernels and secure operations: tables, JSON and plots in bench-results/"
	@echo "make docs    write the generated parts of README.md and docs/ again"
	@echo "make wheel   dist/*.whl, which installs without a compiler: what operators, owners and receivers deploy"
	@echo "make shell   a shell with $(BIN) first in PATH: ppca, python, pytest"
	@echo "make setup   build and install into $(VENV) (the others do it when needed)"
	@echo "make clean   remove $(VENV) and build products"

setup: $(STAMP)

$(STAMP): $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

shell: setup
	PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" $${SHELL:-/bin/sh}

demo: setup
	$(BIN)/ppca demo

# Whatever asserts times runs after the others, with the machine to itself.
test: setup
	$(BIN)/python -m pytest $(WORKERS) -m "not alone" --durations=15
	$(BIN)/python -m pytest -m alone --durations=5

quick: setup
	$(BIN)/python -m pytest $(WORKERS) -m "not alone and not processes and not slow"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror native/*/*.?pp

format: setup
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*/*.?pp

bench: setup
	$(BIN)/ppca bench kernels
	$(BIN)/ppca bench ops

docs: setup
	$(BIN)/python -m docs.generate

# auditwheel checks that the module needs nothing but an old enough C library, and names the wheel after it.
DIST  := dist
WHEEL := build/wheel
wheel: setup
	rm -rf $(WHEEL)/raw $(DIST)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL)/raw \
	  --config-settings build-dir=$(WHEEL)/objects .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel --verbose repair --wheel-dir $(DIST) $(WHEEL)/raw/*.whl \
	  2> $(WHEEL)/auditwheel.log || { cat $(WHEEL)/auditwheel.log; exit 1; }
	@ls $(DIST)/*.whl

clean:
	rm -rf $(VENV) build dist
