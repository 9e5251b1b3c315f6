# One list of commands, for people and for CI. `make` alone prints it.
#
# Everything runs in .venv, built on first use from requirements/dev.txt (pinned, with hashes) and rebuilt
# when that file changes. After that no target but `bench` and `test-agents` (first use) and `pins` needs a network.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 3
COVERAGE_PERCENT_MIN := 90

BENCH_VENV := $(VENV)-bench
ORIGINAL   := $(BENCH_VENV)-original
PREFECT    := $(BENCH_VENV)-prefect
PINS_VENV  := $(VENV)-pins
NPM_VENV   := $(VENV)-npm
AGENTS     := .agents
BESIDE     := distributions/maos-demo distributions/maos-import-legacy distributions/maos-testing
PY         := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-input
FROM_PINS   := --require-hashes --only-binary :all:

# The tests start some thousands of processes: byte code is written, or each of them compiles all of maos again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-agents test-pythons test-soak where mutants check docs bench golden pins release clean

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12 VENV=.venv-3.12] [JOBS=4]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.ready ## three agents at work, killed in the middle; a proof that nothing was lost
	@$(PY) -P -m maos demo $(ARGS)

test: $(VENV)/.ready ## the whole suite, with coverage; fails below 90 %
	@echo "==> pytest, $(JOBS) at a time"
	@$(PY) -m pytest -n $(JOBS) --durations=10 \
		--cov --cov-report=term --cov-fail-under=$(COVERAGE_PERCENT_MIN) $(ARGS)

test-agents: $(VENV)/.ready $(AGENTS)/.ready ## with the real Codex and opencode (230 MB, fetched on first use)
	@echo "==> pytest -m agents, $(JOBS) at a time"
	@$(PY) -m pytest tests/agents_large -m agents -n $(JOBS) --durations=5 $(ARGS)

test-soak: $(VENV)/.ready ## the tests that run for minutes and are left out of `test`
	@echo "==> pytest -m soak"
	@$(PY) -m pytest tests -m soak --timeout=3600 $(ARGS)

test-pythons: $(VENV)/.ready ## the suite on each supported Python that is installed here (ARGS="tests/model" for a part)
	@$(PY) tools/pythons.py -n $(JOBS) $(ARGS)

where: $(VENV)/.ready ## the tests of one file: FILE=src/maos/bus/bus.py
	@$(PY) tools/where.py $(FILE)

mutants: $(VENV)/.ready ## plant bugs one by one, each in a copy, and see that the tests catch them (ARGS="store", ARGS=--list)
	@$(PY) -m tests.mutants $(ARGS)

check: $(VENV)/.ready ## style, format, types and the direction of imports
	@echo "==> ruff check"
	@$(PY) -m ruff check .
	@echo "==> ruff format --check"
	@$(PY) -m ruff format --check .
	@echo "==> mypy"
	@$(PY) -m mypy
	@echo "==> lint-imports"
	@$(VENV)/bin/lint-imports

docs: $(VENV)/.ready ## the documentation as a site in build/site; fails at a link that leads nowhere
	@echo "==> docs/generate.py"
	@$(PY) docs/generate.py
	@echo "==> docs/build.py"
	@$(PY) docs/build.py

bench: $(BENCH_VENV)/.ready $(ORIGINAL)/.installed $(PREFECT)/.installed ## list the benchmarks; NAME=append runs one, QUICK=1 for a short look
	@$(BENCH_VENV)/bin/python -m benchmarks.run $(NAME) $(if $(QUICK),--quick)

golden: $(VENV)/.ready ## rewrite the golden files from what the code does now; read the diff before you commit
	@echo "==> pytest --update-golden"
	@$(PY) -m pytest --update-golden $(ARGS)
	@git --no-pager diff --stat -- tests

pins: $(PINS_VENV)/.ready ## resolve requirements/*.in and pyproject.toml again (needs a network)
	@for name in dev bench; do \
		echo "==> requirements/$$name.txt"; \
		$(PINS_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --custom-compile-command "make pins" \
			--output-file requirements/$$name.txt pyproject.toml requirements/$$name.in || exit 1; \
	done
	@for name in agents original prefect; do \
		echo "==> requirements/$$name.txt"; \
		$(PINS_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --custom-compile-command "make pins" \
			--output-file requirements/$$name.txt requirements/$$name.in || exit 1; \
	done

release: $(VENV)/.ready ## check, test, build and tag VERSION=x.y.z; nothing is pushed (ARGS=--dry-run changes nothing)
	@$(PY) tools/release.py $(VERSION) $(ARGS)

clean: ## remove everything that was built, the environments too
	rm -rf $(VENV) $(VENV)-3.* $(BENCH_VENV) $(ORIGINAL) $(PREFECT) $(PINS_VENV) $(NPM_VENV) $(AGENTS) build dist .bench .coverage \
		.coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src distributions tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# An environment is ready when its last step has left .ready; a half-built one is built again from nothing.
# pip writes byte code whatever PYTHONDONTWRITEBYTECODE says, so the first start is not slower than the second.

$(VENV)/.installed: requirements/dev.txt
	$(call new_environment,$(VENV),requirements/dev.txt)

$(BENCH_VENV)/.installed: requirements/bench.txt
	$(call new_environment,$(BENCH_VENV),requirements/bench.txt)

# The original of this idea is a package of the same name, so it cannot share an environment with ours.
$(ORIGINAL)/.installed: requirements/original.txt
	$(call new_environment,$(ORIGINAL),requirements/original.txt)

$(PREFECT)/.installed: requirements/prefect.txt
	$(call new_environment,$(PREFECT),requirements/prefect.txt)

$(NPM_VENV)/.installed: requirements/agents.txt
	$(call new_environment,$(NPM_VENV),requirements/agents.txt)

# Programs of others, taken as they are: only the packages that the list names, with the hashes it names.
$(AGENTS)/.ready: requirements/agents.npm tests/agents_large/install.py | $(NPM_VENV)/.installed
	@echo "==> $(AGENTS): install requirements/agents.npm (about a minute)"
	@$(PYTHON) tests/agents_large/install.py --npm $(NPM_VENV)/bin/npm --into $(AGENTS) requirements/agents.npm
	@touch $@

$(VENV)/.ready $(BENCH_VENV)/.ready: %/.ready: %/.installed pyproject.toml $(BESIDE:=/pyproject.toml)
	@echo "==> $*: install maos and the distributions beside it from this directory"
	@$*/bin/python $(PIP_INSTALL) --no-build-isolation --no-deps $(patsubst %,--editable %,. $(BESIDE))
	@touch $@

$(PINS_VENV)/.ready:
	@echo "==> $(PINS_VENV): install uv"
	@$(PYTHON) -m venv --clear $(PINS_VENV)
	@$(PINS_VENV)/bin/python $(PIP_INSTALL) uv==0.13.7
	@touch $@

define new_environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "maos needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
@echo "==> $(1): new environment ($$($(PYTHON) --version))"
@$(PYTHON) -m venv --clear $(1) || \
	{ echo "no virtual environment: on Debian and Ubuntu, install python3-venv" >&2; exit 1; }
@echo "==> $(1): install $(2) (about a minute)"
@$(1)/bin/python $(PIP_INSTALL) $(FROM_PINS) -r $(2)
@touch $@
endef
