# make demo   audit the embedded example and write report/index.html
# make test   run the test suite, but for what is slow
# make test-slow  run what is slow: at length, or at published scales
# make demo-check  run the demo and compare every score with what it printed before
# make check  lint, types and the import contract
# make docs   build the documentation site into build/site; a broken link is an error
VENV ?= .venv
PYTHON ?= python3
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check

.PHONY: demo demo-check test test-slow check docs speed clean

demo: $(VENV)/.installed
	$(VENV)/bin/leakgauge audit examples/demo.toml --out report

demo-check: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/demo.py

# One thread per worker: two workers with two threads each wait for one another.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.installed-integrations
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n auto --dist worksteal -m slow tests

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

docs: $(VENV)/.installed-dev
	$(VENV)/bin/mkdocs build --quiet

speed: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/speed.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed

# Flower and Ray are half as much again to install, and only what is slow really runs them.
$(VENV)/.installed-integrations: $(VENV)/.installed-dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[integrations-dev]'
	touch $@

clean:
	rm -rf $(VENV) report build dist
