# Needs Python 3.11 or newer, make and a package registry; nothing else.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
	$(if $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo ok),$(p))))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Extras that the tests try too, such as EXTRAS=iroh,mlx; without them their tests skip by name.
EXTRAS ?=
# Processes that share the tests out, a file at a time.
JOBS ?= 2
comma := ,
TESTED := $(VENV)/.tested$(subst $(comma),-,$(EXTRAS:%=-%))

.PHONY: demo test test-all lint bench clean

demo: $(VENV)/.installed  ## split a real model in two and have it say hello
	@$(BIN)/ropeway demo

test: lint  ## ruff, mypy --strict and pytest
	@$(BIN)/pytest -q -n $(JOBS) --dist loadfile

test-all:  ## the same with every extra; torch alone is some gigabytes where its build for GPUs is taken
	@$(MAKE) test EXTRAS=iroh,mlx,ray,tinygrad,torch

bench: $(VENV)/.installed  ## measure everything and redraw docs/plots and the tables; an idle machine, most of an hour
	@$(BIN)/python bench/suite.py

lint: $(TESTED)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/mypy

$(VENV)/.installed: pyproject.toml
	@$(if $(PYTHON),,$(error Ropeway needs Python 3.11 or newer; set PYTHON to one))
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(TESTED): $(VENV)/.installed
	@echo "installing what the tests need"
	@$(PIP) -e '.[test$(EXTRAS:%=$(comma)%)]'
	@touch $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
