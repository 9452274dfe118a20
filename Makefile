# make explore   set up and open the explorer in JupyterLab      (PORT=8890, NO_BROWSER=1)
# make test      set up and run every test and check
PYTHON ?= $(shell command -v python3.12 || command -v python3.11 || command -v python3)
PORT ?= 8888
BIN := .venv/bin

.PHONY: explore test setup clean

explore: setup
	$(BIN)/remat-explorer lab notebooks/01_explorer.ipynb --port $(PORT) $(if $(NO_BROWSER),--no-browser)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

setup: .venv/installed

# pip resolves nothing on a second run: the stamp is newer than what decides the packages.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Python 3.11 or newer is needed; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv \
	    || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch .venv/installed

clean:
	rm -rf .venv
