# Everything runs from .venv; every target sets it up first if it is not there.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
EXTRAS ?= all,test
PACKAGES := $(wildcard packages/*)
SOURCES := src tests packages examples benchmarks recipes conftest.py docs/hooks.py docs/counts.py docs/messages.py docs/house.py docs/packages.py docs/environment.py docs/release.py docs/papers.py

.PHONY: setup messages system lint audit bom test test-all pytest lowest demo bench promises load storm storm-faults seeds docs house clean

setup: $(STAMP)

$(STAMP): pyproject.toml $(PACKAGES:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Holdfast needs Python 3.11 or newer; PYTHON=... make setup chooses one")'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python docs/environment.py --extras '$(EXTRAS)' --torch-index '$(TORCH_INDEX)'
	@touch $(STAMP)
	@echo 'Next: . $(VENV)/bin/activate, then holdfast doctor, or holdfast demo --quick'

system: ## Debian's browser, database, proxy and moved clock, for the tests that need real ones
	@if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		command -v chromium >/dev/null && [ -n "$$(ls /usr/lib/postgresql/*/bin/postgres 2>/dev/null)" ] || \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium postgresql fonts-dejavu-core >/dev/null; }; \
		command -v nginx >/dev/null && command -v sqlite3 >/dev/null && command -v faketime >/dev/null || \
		{ apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light openssl sqlite3 faketime >/dev/null; } || \
		echo 'make system: nginx, sqlite3 and faketime are not there and cannot be installed now; the tests that use them are skipped'; \
	else \
		echo 'make system: no apt-get or not root; install chromium, postgresql, nginx, sqlite3 and faketime yourself for the tests that use them'; \
	fi

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/packages.py audit --seconds $(AUDIT_S)

AUDIT_S := 15
audit: setup ## what advisories say about the installed packages, with more patience than lint has
	$(BIN)/python docs/packages.py audit --seconds 300

bom: setup ## the software bill of materials (CycloneDX)
	$(BIN)/python docs/packages.py bill dist/holdfast.cdx.json

# Lint and tests run side by side: mypy takes one core for a minute, in which the other would wait.
test: setup
	@$(MAKE) --no-print-directory --jobs=2 lint pytest

test-all: setup
	@$(MAKE) --no-print-directory --jobs=2 lint pytest WHICH='slow or not slow'

# Bytecode is kept even where the environment says not to: tests start hundreds of processes, and each would compile all
# sources again.
WHICH := not slow
pytest: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist worksteal -m '$(WHICH)'

LOWEST := tests packages
lowest: ## the lower bounds of pyproject.toml, tried in an environment of their own; LOWEST chooses the tests
	@.venv-lowest/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python docs/environment.py --lowest
	PYTHONDONTWRITEBYTECODE= .venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m '$(WHICH)' $(LOWEST)

bench: setup
	$(BIN)/python benchmarks/run.py

promises: setup ## every rate that docs/statistics states, drawn again over all cores (hours of one core); resumes
	PYTHONPATH=src:benchmarks $(BIN)/python -m promises

load: setup ## two hundred people vote at once, on SQLite and PostgreSQL, and the server is killed under them
	$(BIN)/python benchmarks/load.py

STORM := --minutes 60
storm: setup ## an hour of commands under kills, full disks, damaged files, moved clocks, slow stores and hostile files
	$(BIN)/python tests/storm/storm.py $(STORM) --json build/storm.json

storm-faults: setup ## whether a storm finds faults that are planted in copies of the source (minutes each)
	$(BIN)/python tests/storm/storm_faults.py $(FAULTS)

demo: setup ## the embedded world and twenty photographs, measured and reported
	$(BIN)/holdfast demo --out demo
	@echo 'Open file://$(CURDIR)/demo/index.html in a browser'

seeds: setup ## every row of docs/seeds: its command in a small size, and what it writes
	$(BIN)/python docs/papers.py

docs: setup ## the documentation as a site, from local files only (--quiet would hide warnings from --strict, too)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python docs/counts.py

messages: setup ## every message that a user may read, in one file for review: build/messages.md
	$(BIN)/python docs/messages.py

house: setup ## the rooms of the package to scale, with their imports, for docs/architecture.md
	$(BIN)/python docs/house.py

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache
