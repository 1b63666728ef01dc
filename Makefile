# Everything runs in .venv, which is made once and again when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TREE := build/types/splitproof
SCHEDULES ?= 20000

.DEFAULT_GOAL := help
.PHONY: help demo test differential lint format types check clean

help:
	@echo "make demo    show a proved and executed layer, two faults and a real llama.cpp graph"
	@echo "make test    run the tests"
	@echo "make differential  hold the checker against every interleaving of 20,000 schedules"
	@echo "make lint    ruff: rules and format"
	@echo "make types   mypy"
	@echo "make check   lint, types and test"
	@echo "make format  let ruff rewrite the files"
	@echo "make clean   remove what was built, .venv too"

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "splitproof needs Python 3.11 or newer; $(PYTHON) is" \
		"$$($(PYTHON) --version 2>&1 || echo not installed). Try: make PYTHON=python3.12 …" >&2; \
		exit 1; }
	@echo "Setting up .venv (once) …" >&2
	@mkdir -p .venv
	@{ $(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check --editable ".[dev]"; } > .venv/setup.log 2>&1 \
		|| { cat .venv/setup.log >&2; exit 1; }
	@touch $@

demo: $(READY)
	@$(BIN)/python docs/demo.py

test: $(READY)
	@$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

# pytest's last line alone, unless something differs.
differential: $(READY)
	@mkdir -p build
	@SPLITPROOF_SCHEDULES=$(SCHEDULES) $(BIN)/python -m pytest -q -n auto --dist worksteal \
		-k checker_and_oracle tests/verify/test_oracle.py > build/differential.log 2>&1 \
		|| { cat build/differential.log; exit 1; }
	@echo "differential: $(SCHEDULES) schedules, $$(tail -n 1 build/differential.log)"

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# An editable install is a hook that mypy does not follow: give it the package as a tree.
types: $(READY)
	@rm -rf $(TREE) && mkdir -p $(TREE)
	@ln -s $(CURDIR)/cli/* $(CURDIR)/model $(CURDIR)/verify $(CURDIR)/exec $(TREE)/
	@MYPYPATH=build/types $(BIN)/mypy

check: lint types test

clean:
	rm -rf .venv build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
