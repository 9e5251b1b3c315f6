# One list of commands, for people and for CI. `make` alone prints it.
#
# Everything runs in .venv, built on first use from requirements/dev.txt (pinned, with hashes) and rebuilt
# when that file changes. After that no target but `bench`, `test-agents` and `test-projects` (first use) and `pins`
# needs a network.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 4
COVERAGE_PERCENT_MIN := 90
# `make test` kills programs at each crash point by name and at a few of the others; `make test-soak` at all of them.
CRASH_SHARE ?= 0.05

BENCH_VENV := $(VENV)-bench
ORIGINAL   := $(BENCH_VENV)-original
PREFECT    := $(BENCH_VENV)-prefect
PINS_VENV  := $(VENV)-pins
NPM_VENV   := $(VENV)-npm
AGENTS     := .agents
BROWSER    := .browser
PAGE       := src/maos/web/page/vendor
PROJECTS   := .projects
BESIDE     := distributions/maos-demo distributions/maos-import-legacy distributions/maos-testing
PY         := $(VENV)/bin/python
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-input
PIP_DOWNLOAD := -m pip download --quiet --disable-pip-version-check --no-input
# The lists are complete: pip resolves nothing, so that a new release of a package cannot change or break an install.
FROM_PINS   := --require-hashes --no-deps --only-binary :all:

# The tests start some thousands of processes: byte code is written, or each of them compiles all of maos again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test coverage test-agents test-projects test-pythons test-soak where mutants check docs bench golden pins release clean

help: ## show this list
	@echo "usage: make TARGET [PYTHON=python3.12 VENV=.venv-3.12] [JOBS=4]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# A machine that reaches the packages of Python and not those of npm gets everything but the page at the end.
demo: $(VENV)/.ready ## three agents at work, killed in the middle; a proof that nothing was lost
	@$(MAKE) --no-print-directory $(PAGE)/.ready || \
		echo "==> without the page at the end: the modules it needs could not be fetched"
	@$(PY) -P -m maos demo $$([ -e $(PAGE)/.ready ] || echo --no-serve) $(ARGS)

test: $(VENV)/.ready $(PAGE)/.ready $(BROWSER)/.ready ## the whole suite
	@echo "==> pytest, $(JOBS) at a time"
	@MAOS_CRASH_SHARE=$(CRASH_SHARE) $(PY) -m pytest -n $(JOBS) --dist worksteal --durations=10 $(ARGS)

coverage: $(VENV)/.ready $(PAGE)/.ready $(BROWSER)/.ready ## the whole suite again, with coverage; fails below 90 %
	@echo "==> pytest --cov, $(JOBS) at a time"
	@MAOS_CRASH_SHARE=$(CRASH_SHARE) $(PY) -m pytest -n $(JOBS) \
		--cov --cov-report=term --cov-fail-under=$(COVERAGE_PERCENT_MIN) $(ARGS)

test-agents: $(VENV)/.ready $(AGENTS)/.ready ## with the real Codex and ACP agents (290 MB, fetched on first use)
	@echo "==> pytest -m agents, 2 at a time"
	@$(PY) -m pytest tests/agents_large -m agents -n 2 --durations=5 $(ARGS)

test-projects: $(VENV)/.ready $(PROJECTS)/.ready ## with three real projects from PyPI, whose own tests run in worktrees (fetched on first use)
	@echo "==> pytest -m projects"
	@$(PY) -m pytest tests/projects -m projects --durations=5 $(ARGS)

test-soak: $(VENV)/.ready ## the tests that run for minutes and are left out of `test`, and every crash point
	@echo "==> pytest -m soak"
	@$(PY) -m pytest tests -m soak --timeout=3600 $(ARGS)
	@MAOS_FUZZ_CASES=5000 $(PY) -m pytest tests/fuzz --timeout=3600 $(ARGS)
	@echo "==> pytest, every crash point"
	@$(PY) -m pytest $$(grep -rl --include='test_*.py' crash_loop tests) --timeout=3600 $(ARGS)

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

bench: $(BENCH_VENV)/.ready $(ORIGINAL)/.installed $(PREFECT)/.installed $(if $(filter serve,$(NAME)),$(PAGE)/.ready $(BROWSER)/.ready) ## list the benchmarks; NAME=append runs one, QUICK=1 for a short look
	@$(BENCH_VENV)/bin/python -m benchmarks.run $(NAME) $(if $(QUICK),--quick)

golden: $(VENV)/.ready ## rewrite the golden files from what the code does now; read the diff before you commit
	@echo "==> pytest --update-golden"
	@$(PY) -m pytest --update-golden $(ARGS)
	@git --no-pager diff --stat -- tests

pins: $(PINS_VENV)/.installed ## resolve requirements/*.in and pyproject.toml again (needs a network)
	@for name in dev bench; do \
		echo "==> requirements/$$name.txt"; \
		$(PINS_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
			--no-strip-extras --no-emit-index-url --custom-compile-command "make pins" \
			--output-file requirements/$$name.txt pyproject.toml requirements/$$name.in || exit 1; \
	done
	@for name in npm original pins prefect projects-tools; do \
		echo "==> requirements/$$name.txt"; \
		$(PINS_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --custom-compile-command "make pins" \
			--output-file requirements/$$name.txt requirements/$$name.in || exit 1; \
	done

release: $(VENV)/.ready ## check, test, build and tag VERSION=x.y.z; nothing is pushed (ARGS=--dry-run changes nothing)
	@$(PY) tools/release.py $(VERSION) $(ARGS)

clean: ## remove everything that was built, the environments too
	rm -rf $(VENV) $(VENV)-3.* $(BENCH_VENV) $(ORIGINAL) $(PREFECT) $(PINS_VENV) $(NPM_VENV) $(AGENTS) $(BROWSER) $(PAGE) $(PROJECTS) build dist .bench .coverage \
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

$(PINS_VENV)/.installed: requirements/pins.txt
	$(call new_environment,$(PINS_VENV),requirements/pins.txt)

$(NPM_VENV)/.installed: requirements/npm.txt
	$(call new_environment,$(NPM_VENV),requirements/npm.txt)

# Programs and modules of others, taken as they are: only the packages that a list names, with the hashes it names.
$(AGENTS)/.ready: requirements/agents.npm tools/npm_packages.py | $(NPM_VENV)/.installed
	@echo "==> $(AGENTS): install requirements/agents.npm (about a minute)"
	@$(PYTHON) tools/npm_packages.py --linux-only --npm $(NPM_VENV)/bin/npm --into $(AGENTS) requirements/agents.npm
	@touch $@

$(PAGE)/.ready: requirements/page.npm tools/npm_packages.py | $(NPM_VENV)/.installed
	@echo "==> $(PAGE): install requirements/page.npm"
	@$(PYTHON) tools/npm_packages.py --npm $(NPM_VENV)/bin/npm --into $(PAGE) requirements/page.npm
	@touch $@

$(BROWSER)/.ready: requirements/browser.npm tools/npm_packages.py tools/browser.py | $(NPM_VENV)/.installed
	@echo "==> $(BROWSER): install requirements/browser.npm (70 MB)"
	@$(PYTHON) tools/npm_packages.py --linux-only --npm $(NPM_VENV)/bin/npm --into $(BROWSER) requirements/browser.npm
	@$(PYTHON) tools/browser.py --node $(NPM_VENV)/bin/node $(BROWSER)/chromium
	@touch $@

# Sources of the projects, and wheels of what they need: their setup then needs no network.
$(PROJECTS)/.ready: requirements/projects.txt requirements/projects-tools.txt | $(VENV)/.installed
	@echo "==> $(PROJECTS): fetch requirements/projects.txt (about a minute)"
	@rm -rf $(PROJECTS) && mkdir $(PROJECTS)
	@$(PY) $(PIP_DOWNLOAD) $(FROM_PINS) --dest $(PROJECTS)/wheels -r requirements/projects-tools.txt
	@$(PY) $(PIP_DOWNLOAD) --no-binary :all: --no-deps --dest $(PROJECTS)/sources --require-hashes -r requirements/projects.txt
	@touch $@

$(VENV)/.ready $(BENCH_VENV)/.ready: %/.ready: %/.installed pyproject.toml $(BESIDE:=/pyproject.toml)
	@echo "==> $*: install maos and the distributions beside it from this directory"
	@$*/bin/python $(PIP_INSTALL) --no-build-isolation --no-deps $(patsubst %,--editable %,. $(BESIDE))
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
