# `make demo` and `make test` work on a fresh machine with Python >= 3.11, g++ and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SITE_STAMP := $(VENV)/.installed-docs
NATIVE := $(wildcard native/*/*) CMakeLists.txt pyproject.toml

# The tests start several hundred Python processes. Each of them would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

# One worker per core and one more, which fills the time in which tests wait (tests/conftest.py). A file's tests stay on one
# worker, so each module fixture is set up once. Files are started in the order of collection: tests/conftest.py puts the slow
# ones first.
WORKERS := --numprocesses auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder
PYTEST  := $(BIN)/python -m pytest

.PHONY: help setup shell demo quick test test-release retry coverage site lint format bench docs wheel release clean

help:
	@echo "make demo          three hospitals on four local servers, with the plaintext result"
	@echo "make quick         tests that start no process: run them while you work"
	@echo "make test          all tests except release tests: about five minutes"
	@echo "make test-release  slow tests: guide, wheel, fresh clone, chaos, fuzzing"
	@echo "make retry         tests that failed in the last run, one at a time"
	@echo "make coverage      branch coverage of src/ppca by make test"
	@echo "make lint          ruff, mypy, clang-format, codespell and retired words"
	@echo "make format        format the code with ruff and clang-format"
	@echo "make bench         benchmark kernels and secure operations"
	@echo "make docs          update the generated parts of README.md and docs/"
	@echo "make site          documentation in build/site, with executed tutorials"
	@echo "make wheel         dist/*.whl, which installs without a compiler"
	@echo "make release       wheels, bill of materials and checksums"
	@echo "make shell         a shell with $(BIN) first in PATH: ppca, python, pytest"
	@echo "make setup         install into $(VENV) (other targets do it if needed)"
	@echo "make clean         remove $(VENV) and build products"

setup: $(STAMP)

$(STAMP): $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

shell: setup
	PATH="$(abspath $(BIN)):$$PATH" VIRTUAL_ENV="$(abspath $(VENV))" $${SHELL:-/bin/sh}

demo: setup
	$(BIN)/ppca demo

quick: setup
	$(PYTEST) $(WORKERS) -m "not release and not processes"

test: setup
	$(PYTEST) $(WORKERS) -m "not release" -rfEs --durations=15

# Property tests run again, with more examples. The rest builds, installs or takes long.
test-release: setup $(SITE_STAMP)
	$(PYTEST) $(WORKERS) -m "release or hypothesis" --hypothesis-profile=thorough -rfEs --durations=15

# Tests that failed in the last run, one at a time. .ci/run calls it: a test that passes now depends on the load of the machine.
retry: setup
	$(PYTEST) --last-failed --last-failed-no-failures=none --hypothesis-profile=$(PROFILE) -rfEs
PROFILE := fast

# Pages are static files that load nothing from other hosts. Notebooks run once: build/notebooks keeps their outputs.
# NOTEBOOKS=off leaves the outputs out, which takes some seconds.
NOTEBOOKS := cache
site: setup $(SITE_STAMP)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -D nb_execution_mode=$(NOTEBOOKS) docs build/site
	@echo "open build/site/index.html"

$(SITE_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

# Server processes are measured too ([tool.coverage.run] patch in pyproject.toml).
COVERAGE := $(BIN)/python -m coverage
coverage: setup
	rm -f .coverage .coverage.*
	-$(COVERAGE) run -m pytest $(WORKERS) -m "not release"
	$(COVERAGE) combine --quiet
	@echo "The ten least covered modules:"
	@$(COVERAGE) report --precision=1 | grep '^src' | sort -n -k6 | head -10
	@$(COVERAGE) report --precision=1 | grep '^TOTAL'

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror native/*/*.?pp
	$(BIN)/codespell
	$(BIN)/python tools/retired_words.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/clang-format -i native/*/*.?pp

bench: setup
	$(BIN)/ppca bench kernels
	$(BIN)/ppca bench ops

docs: setup
	$(BIN)/python -m docs.generate

# auditwheel checks that the module needs nothing but an old enough C library, and names the wheel after it. The same sources give
# the same bytes: times in the archive are those of the commit, and no path of this machine is in the module.
DIST  := dist
WHEEL := build/wheel
WHEEL_PYTHON := $(BIN)/python
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
wheel: setup
	rm -rf $(WHEEL)/raw $(WHEEL)/objects $(DIST)
	$(call build_wheel,$(WHEEL_PYTHON))
	@ls $(DIST)/*.whl

define build_wheel
	umask 022; CXXFLAGS="$$CXXFLAGS -ffile-prefix-map=$(abspath .)=." $(1) -m pip wheel --quiet --disable-pip-version-check --no-deps \
	  --wheel-dir $(WHEEL)/raw --config-settings build-dir=$(WHEEL)/objects/$(notdir $(1)) .
	umask 022; PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel --verbose repair --wheel-dir $(DIST) $(WHEEL)/raw/*.whl \
	  2> $(WHEEL)/auditwheel.log || { cat $(WHEEL)/auditwheel.log; exit 1; }
	rm -rf $(WHEEL)/raw
endef

# Wheels for every interpreter that is here, a software bill of materials, and checksums of everything in dist/. A command that
# does not start is not counted: version managers put one in the path for versions that are not installed.
PYTHONS ?= $(foreach each,3.11 3.12 3.13,$(shell python$(each) -c 'import sys; print(sys.executable)' 2>/dev/null))
release: setup
	@echo "wheels for: $(or $(strip $(PYTHONS)),no Python was found; name interpreters with PYTHONS=)"
	@test -n "$(strip $(PYTHONS))"
	rm -rf $(WHEEL)/raw $(WHEEL)/objects $(DIST)
	$(foreach each,$(PYTHONS),$(call build_wheel,$(each))$(newline))
	$(BIN)/python tools/sbom.py $(DIST)
	cd $(DIST) && sha256sum $$(ls | LC_ALL=C sort) > SHA256SUMS && cat SHA256SUMS

define newline


endef

clean:
	rm -rf $(VENV) build dist
