# `make demo` and `make test` work on a fresh machine with Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
NATIVE := $(wildcard native/*/*) CMakeLists.txt pyproject.toml

.PHONY: help setup demo test lint format bench docs clean

help:
	@echo "make demo    three hospitals on four local servers, beside the plaintext answer"
	@echo "make test    all tests"
	@echo "make lint    ruff, mypy and clang-format"
	@echo "make format  write the code as ruff and clang-format want it"
	@echo "make bench   native kernels and secure operations: tables, JSON and plots in bench-results/"
	@echo "make docs    write the generated parts of README.md and docs/ again"
	@echo "make setup   build and install into $(VENV) (the others do it when needed)"
	@echo "make clean   remove $(VENV) and build products"

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
	$(BIN)/clang-format --dry-run --Werror native/*/*.?pp

format: setup
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*/*.?pp

bench: setup
	$(BIN)/ppca bench kernels
	$(BIN)/ppca bench ops

docs: setup
	$(BIN)/python -m docs.generate

clean:
	rm -rf $(VENV) build dist
