# make explore   set up and open the explorer in JupyterLab      (PORT=8890, NO_BROWSER=1)
# make test      set up and run every test and check            (WORKERS=2)
# make quick     every check, and the part of the tests that QUICK lists, in about a minute
# The first Python that is new enough and can make virtual environments.
USABLE = import sys, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(if $(shell $(name) -c '$(USABLE)' 2>&1 || echo no),,$(name))))
PORT ?= 8888
# Processes that tests start read torch and numba as bytecode, whatever the environment says: seconds for each of them.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= 2
BIN := .venv/bin

# Tests that need seconds: no long search, no execution of a large model, no browser.
QUICK := $(addprefix tests/, core explanations figures capture/test_costs.py capture/test_details.py \
	explorer/test_matrices.py explorer/test_panels.py explorer/test_scrubber.py project/test_cli_doctor.py \
	project/test_contributing.py project/test_environment.py runtime/test_generated_code.py solvers/bounds \
	solvers/rounding solvers/test_milp_handle.py solvers/test_overwriting.py solvers/test_threads.py \
	solvers/test_wrong_schedules.py)

.PHONY: explore test quick quick-tests check setup clean

explore: setup
	$(BIN)/remat-explorer lab notebooks/01_explorer.ipynb --port $(PORT) $(if $(NO_BROWSER),--no-browser)

test: .venv/interpreted
	$(MAKE) --jobs=2 --output-sync=target setup check
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

quick: .venv/installed
	$(MAKE) --jobs=2 --output-sync=target check quick-tests

quick-tests: .venv/installed
	$(BIN)/python -m pytest -q $(QUICK)

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

# The search is compiled ahead, once: no solve and no test with a time limit need wait for it.
setup: .venv/installed
	$(BIN)/python -m remat_explorer.solvers.search.compilation

# pip resolves nothing on a second run: the stamp is newer than what decides the packages. It compiles nothing ahead:
# Python does that with what is imported.
.venv/installed: pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error Python 3.11 or newer with venv is needed; on Debian: apt-get install python3-venv))
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[test]'
	@touch .venv/installed

# Without a GPU, the tests of its kernels interpret them.
.venv/interpreted: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[triton]'
	@touch .venv/interpreted

clean:
	rm -rf .venv
