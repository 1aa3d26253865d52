# make demo     watch the library survive a server and a network that disconnect
# make test     everything that has to hold, the way CI checks it
# make format   put the code into its shape

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test check unit simulation format clean

demo: $(VENV)/installed-cli
	$(BIN)/sansmcp demo

test: check unit simulation

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# Coverage is of the core alone, and of the tests that do not repeat it hundreds of times.
unit: $(VENV)/installed-dev
	$(BIN)/coverage run -m pytest -q -m "not simulation"
	$(BIN)/coverage report

simulation: $(VENV)/installed-dev
	$(BIN)/python -m pytest -q -m simulation

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV)

# Installed again only when what is needed has changed.
$(VENV)/installed-%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	touch $@
