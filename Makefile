# Two commands for a fresh machine:   make burn   and   make test
#
# They need Python 3.11 or later with venv, and a C compiler; what is missing is said, with the
# name of its Debian package. Everything else goes into .venv, which is made when it is needed.
#
#   make burn RACK=hgx-h100 ARGS='--seed 7'     another rack, other options
#   make test PYTEST='-k layers'                some of the tests
#   make PYTHON=/opt/python3.12/bin/python3 …   another Python
#   REQUIRE_ALL=1 make test                     what cannot be run is a failure

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help burn test lint typing prove bench gpu-check clean environment-burn environment-test

RACK ?= gb300-nvl72
ARGS ?=
PYTEST ?=
# How many tests at once: one for each core.
JOBS ?= auto
export PYTHON CC REQUIRE_ALL

# What another project left in the shell bends neither ours.
unexport PYTHONPATH PYTHONHOME PYTEST_ADDOPTS PYTEST_PLUGINS MYPYPATH VIRTUAL_ENV MAKEFLAGS MAKELEVEL

# Products of the emulated racks are small; threads for them only get into each other's way.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

# Without a home that can be written to, pip and compilers get one here.
ifneq ($(shell test -d "$$HOME" && test -w "$$HOME" && echo yes),yes)
export HOME := $(CURDIR)/.cache/home
endif

ROOMS := harness diagnostics fixtures reports

help:
	@echo "make burn    burn the emulated $(RACK) and say where the report is"
	@echo "make test    lint, types and tests; lists what it had to leave out"
	@echo "make lint    ruff and mypy alone"
	@echo "make bench   speed, as ratios"
	@echo "make gpu-check   one GPU in four minutes; writes gpu-check.json (ARGS='--out FILE')"
	@echo "make prove   the large counts; writes docs/proof/"
	@echo "make clean   remove .venv and everything else that was made here"

environment-burn:
	@sh .ci/environment burn

environment-test:
	@sh .ci/environment test

burn: environment-burn
	@sh .ci/burn "$(RACK)" $(ARGS)

# mypy does not follow __path__, so links lay the rooms out as they lie in the wheel.
# Links that are there already are left alone, so that two of these at once do not meet.
typing:
	@mkdir -p .typing/rackproof
	@find .typing -xtype l -delete
	@for from in rackproof/*.py rackproof/py.typed $(ROOMS); do \
	    link=".typing/rackproof/$${from#rackproof/}"; \
	    ln -sn "../../$$from" "$$link" 2>/dev/null || [ -L "$$link" ] || exit 1; done

# No cache of mypy's: it costs a second or two, and misses a module that was added to a package.
lint: environment-test typing
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	cd .typing && ../.venv/bin/python -m mypy --config-file ../pyproject.toml \
	    --cache-dir /dev/null -p rackproof

test: lint
	.venv/bin/python -m pytest -n $(JOBS) $(PYTEST)

bench: environment-test
	@for script in $(filter-out benchmarks/prove%,$(sort $(wildcard benchmarks/*.py))); do \
	    echo "== $$script"; .venv/bin/python "$$script" || exit 1; done

gpu-check:
	@sh .ci/gpu-check $(ARGS)

prove: environment-test
	@failed=; for script in $(sort $(wildcard benchmarks/prove*.py)); do \
	    echo "== $$script"; .venv/bin/python "$$script" || failed=1; done; [ -z "$$failed" ]

clean:
	rm -rf .venv .typing .cache .ruff_cache .pytest_cache .hypothesis build dist
