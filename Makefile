# make explore   set up and open the explorer in JupyterLab      (PORT=8890, NO_BROWSER=1)
# make test      set up and run tests and checks                (WORKERS=2)
# make thorough  the same with the tests marked thorough, too; every night on GitHub
# make site      build the site into build/site/html: docs, API, every notebook executed; opens every page once
# make pictures  renew the pictures of figures in the notebooks; NOTEBOOKS="01 04b" renews those of these alone
# make audit     ask whether weaknesses of the packages are known  (needs a network)
# make demo      open the three pages of the demo in a browser; needs no set-up
# make quick     every check, and the part of the tests that QUICK lists, in about a minute
# make test TORCH=2.15.0 PYTHON=python3.13    the same tests with another PyTorch and Python, in a .venv of their own
# The first Python that is new enough and can make virtual environments.
USABLE = import sys, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(if $(shell $(name) -c '$(USABLE)' 2>&1 || echo no),,$(name))))
PORT ?= 8888
# Processes that tests start read torch and numba as bytecode, whatever the environment says: seconds for each of them.
unexport PYTHONDONTWRITEBYTECODE
WORKERS ?= 2
VENV := .venv$(if $(TORCH),-torch-$(TORCH)-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
# The versions that were tested; with TORCH=, those of everything but PyTorch and what comes with it.
VERSIONS := $(if $(TORCH),$(VENV)/constraints.txt,constraints.txt)

# Tests that need seconds: no long search, no execution of a large model, no browser.
QUICK := $(addprefix tests/, core explanations figures capture/test_predicted_costs.py capture/test_graph_assembly.py \
	explorer/test_matrices.py explorer/test_panels.py project/test_cli_doctor.py \
	project/test_contributing.py runtime/test_statements.py solvers/bounds solvers/methods/test_heuristics.py \
	solvers/sweeps/test_frontier.py)

.PHONY: explore demo test thorough quick quick-tests check setup site pictures audit lock clean

explore: setup
	$(BIN)/remat-explorer lab notebooks/01_explorer.ipynb --port $(PORT) $(if $(NO_BROWSER),--no-browser)

demo:
	$(PYTHON) -c "import pathlib, webbrowser; [webbrowser.open(page.resolve().as_uri()) for page in sorted(pathlib.Path('docs/live').glob('*.html'))]"

# Files stay in their order: those in a browser follow each other, and share one. A test that hangs ends its process
# after five minutes, and says what every thread did. The run ends with a process that is lost: with another in its
# place it may wait for ever (pytest-xdist 784).
LOST := --max-worker-restart=0 -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true

# Style and types are those of the PyTorch in constraints.txt; other versions declare other types.
test thorough: $(VENV)/interpreted
	$(MAKE) --jobs=2 --output-sync=target setup $(if $(TORCH),,check)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(LOST) $(if $(filter test,$@),-m 'not thorough')

quick: $(VENV)/installed
	$(MAKE) --jobs=2 --output-sync=target check quick-tests

quick-tests: $(VENV)/installed
	$(BIN)/python -m pytest -q $(QUICK)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache

# The search is compiled ahead, once: no solve and no test with a time limit need wait for it.
setup: $(VENV)/installed
	$(BIN)/python -P -m remat_explorer.solvers.search.compilation

# Notebooks run again where their code, the package or a version has changed; what they gave is kept in build/site/executed.
site: setup
	$(BIN)/python -m tools.website build/site

pictures: setup
	$(BIN)/python -m tools.website.pictures build/site $(NOTEBOOKS)

# pip resolves nothing on a second run: the stamp is newer than what decides the packages. It compiles nothing ahead:
# Python does that with what is imported.
# Packages come first by what requirements.lock says of their contents. It leaves out torch, whose builds for CPU and CUDA are
# several under one version and need different packages, and what only some machines need: these come by version.
$(VENV)/installed: pyproject.toml constraints.txt requirements.lock
	$(if $(PYTHON),,$(error Python 3.11 or newer with venv is needed; on Debian: apt-get install python3-venv))
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH),(grep -v -E '^(torch|triton)==' constraints.txt; echo 'torch==$(TORCH)') > $(VERSIONS))
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(VERSIONS) -e '.[test]'
	@touch $(VENV)/installed

# Without a GPU, the tests of its kernels interpret them.
$(VENV)/interpreted: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(VERSIONS) -e '.[triton]'
	@touch $(VENV)/interpreted

# Whether weaknesses of the versions in constraints.txt are known; pip-audit has an environment of its own.
audit:
	$(PYTHON) -m venv .audit
	@.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit || \
		{ echo "Nothing was audited: pip-audit cannot be installed without a network."; exit 2; }
	@.audit/bin/python -P tools/audit.py .audit/bin/pip-audit constraints.txt

# After a change of constraints.txt: the contents of every file of each version that the index has.
lock:
	$(PYTHON) -m venv .audit
	.audit/bin/python -m pip install --quiet --disable-pip-version-check uv
	grep -v -e '^#' -e '^torch==' -e '^triton==' -e '^nvidia-' constraints.txt | .audit/bin/uv pip compile --quiet --universal \
		--python-version 3.11 --no-deps --generate-hashes --no-header --no-annotate --output-file requirements.lock -

clean:
	rm -rf .venv .venv-torch-* .audit
