# `make demo` and `make test` work on a fresh machine with Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(wildcard native/*) CMakeLists.txt pyproject.toml

.PHONY: setup demo test lint bench clean

setup: $(STAMP)

$(STAMP): $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/ppca demo

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/ppca bench kernels
	$(BIN)/ppca bench ops

clean:
	rm -rf $(VENV) build dist
