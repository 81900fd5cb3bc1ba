# make demo   audit the embedded example and write report/index.html
# make test   run the test suite, but for what is slow
# make test-slow  run what is slow: at length, or at published scales
# make demo-check  run the demo and compare every score with what it printed before
# make check  lint, types and the import contract
# make fuzz   try 10 000 malformed files on every reader
# make soak   audit in a loop for an hour, stopped at random, and watch memory, processes and files
# make dist   build the wheel and the sdist, install each in an empty environment and audit with it
# make audit-deps  ask for known vulnerabilities of the pinned versions; says which could not be checked
# make docs   build the documentation site into build/site; a broken link is an error
VENV ?= .venv
PYTHON ?= python3
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check

# Tests start a hundred processes: none compiles again what another has.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo demo-check test test-slow check docs fuzz soak dist audit-deps speed clean

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

fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/fuzz.py --inputs 10000

soak: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(VENV)/bin/python benchmarks/soak.py --minutes 60

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(VENV)/bin/python -c "import setuptools.build_meta as backend; backend.build_sdist('dist'); backend.build_wheel('dist')"
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -m slow tests/test_release.py

# Asks for known vulnerabilities, from an environment of its own; what could not be asked about is called so, and a failure.
audit-deps:
	$(PYTHON) -m venv --clear .venv-audit
	.venv-audit/bin/python -m pip --disable-pip-version-check install --quiet pip-audit
	-.venv-audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off \
		--format json --output .venv-audit/found.json > .venv-audit/log 2>&1
	.venv-audit/bin/python benchmarks/known_vulnerabilities.py .venv-audit/found.json constraints.txt

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
	rm -rf $(VENV) .venv-audit report build dist
