# The two commands: `make demo` and `make test`. Both set up everything they need.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BASE   := $(VENV)/.installed-base
STAMP  := $(VENV)/.installed

.PHONY: help demo test test-all lint format docs bench mutants clean results-tables

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The demo needs the package alone. Tests, types and documentation need the development tools, too.
$(BASE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fova needs Python 3.11 or newer; say which with: make PYTHON=python3.11 ..."; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $(BASE)

$(STAMP): $(BASE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

demo: $(BASE)  ## set up, then train a federation on built-in data and draw what happened
	$(BIN)/fova demo

test: $(STAMP) lint  ## set up, then lint, type check and run the tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP) lint  ## the same, with the slow tests, and with new random examples every time
	$(BIN)/python -m pytest -n 2 --hypothesis-profile "new examples"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)  ## put the code into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## build the documentation as a site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

results-tables: $(STAMP)  ## make the tables in README and docs anew from results/*.json
	$(BIN)/python -m fova.paper.marked

bench: $(STAMP)  ## measure speed: results/bench.json and docs/performance.md (TORCH=PYTHON compares with PyTorch)
	$(BIN)/python benchmarks/bench.py $(if $(TORCH),--torch $(TORCH))

mutants: $(STAMP)  ## change the code in one place at a time and list the changes that no test notices (FILES=src/fova/spaces.py)
	nice $(BIN)/python benchmarks/mutants.py $(FILES) $(if $(TESTS),--tests $(TESTS)) $(if $(SAMPLE),--sample $(SAMPLE))

clean:  ## remove the environment and caches (runs/ stays)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .mutants build
