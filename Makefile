# make demo     watch the library survive a server and a network that disconnect
# make test     everything that has to hold; make thorough: further cases of it
# make flakes RUNS=20  tests with sockets, processes and threads, several runs at a time: what fails?
# make conformance   the official conformance suite, against every adapter
# make requirements  which rules of the protocol are proven, and docs/requirements.md
# make requirements-proof  break rules of the protocol, and see the tests of each fail
# make simulate SECONDS=600   worlds of fresh seeds, until one fails or the time is over;
#     SIMULATE="--from N": of the seeds from N on
# make planted  plant bugs, and see the simulator find them; PLANTED="--draw 3", or names
# make fuzz SECONDS=600   100,000 mutations, then fuzzing by coverage for so long
# make chaos    clients and servers of several libraries, with a network that breaks between them
# make fleet SECONDS=600   kill the processes of a fleet behind HAProxy and Redis; who is not told?
# make schemas  sansmcp/schema.py again, from the schemas of a pinned npm package
# make bench    parsers, servers, clients and more next to others, in at most 15 minutes, and
#     build/bench/index.html; make bench-quick: in two minutes
# make bench-plots   put the plots and ratios of the last run into the checkout
# make docs     the documentation site, in build/site
# make screenshots   what the command shows: the picture, and the sessions in the README
# make frameworks   tools for LangChain, smolagents, Pydantic AI and OpenAI Agents, in environments
# make release-check   what has to hold before a release
# make format   put the code into its shape

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -q --dist worksteal
CORE = tests/codecs tests/vocabulary tests/client tests/server tests/auth tests/tokens \
	tests/http11 tests/relay tests/testing tests/stores/test_stores.py tests/loop/test_async_stores.py \
	tests/trio/test_check_adapter.py tests/typed

# Compiled files save each worker ten seconds of rewriting assertions, and each process of a test some.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check core others thorough tests flakes conformance simulate planted requirements requirements-proof fuzz chaos fleet schemas bench bench-bridges bench-quick bench-plots docs screenshots frameworks release-check format clean

demo: $(VENV)/installed-cli
	$(BIN)/sansmcp demo

# All at once, since most tests wait for much, and the static checks and the core for nothing.
test: $(VENV)/installed-dev
	$(MAKE) --jobs 3 check core others WORKERS=1

# What make test leaves out, which is nothing of the core.
thorough: $(VENV)/installed-dev
	$(PYTEST) -n 3 -m thorough $(CORE:%=--ignore=%)

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# The core, and what it publishes for tests of others: these reach every branch of it.
COVERAGE = --cov
WORKERS = 2
core: $(VENV)/installed-dev
	$(PYTEST) -n $(WORKERS) $(CORE) $(COVERAGE)

# The rest needs no measuring of coverage, which takes time. It waits for sockets and processes: a
# third worker makes use of that.
others: $(VENV)/installed-dev
	$(PYTEST) -n 3 -m "not thorough" $(CORE:%=--ignore=%)

# The tests for other versions of Python, or of the dependencies (CONSTRAINTS="--constraint
# tests/lowest.txt"). Left out is what they change nothing of: further cases of other tests, other
# implementations, how work grows, and the tools and documents of the checkout.
ONCE = tests/conformance tests/docs tests/growth tests/interop tests/lines tests/planted \
	tests/requirements_proof
tests: $(VENV)/installed-dev
	$(PYTEST) -n 3 -m "not thorough and not node" $(ONCE:%=--ignore=%)

# TESTS=tests/loop runs a part of them.
RUNS = 20
flakes: $(VENV)/installed-dev
	$(BIN)/python -m tests.flakes --runs $(RUNS) $(TESTS)

# The verdicts are in build/conformance.json, too.
conformance: $(VENV)/installed-dev
	$(BIN)/python -m tests.conformance --json build/conformance.json

SECONDS = 60
simulate: $(VENV)/installed-dev
	$(BIN)/python -m tests.simulation --seconds $(SECONDS) $(SIMULATE)

planted: $(VENV)/installed-dev
	$(BIN)/python -m tests.planted $(PLANTED)

requirements: $(VENV)/installed-dev
	$(BIN)/python -m tests.house.requirements

# PROOF="--draw 5" tries five of them.
requirements-proof: $(VENV)/installed-dev
	$(BIN)/python -m tests.requirements_proof $(PROOF)

# SECONDS are those by coverage, all targets together.
fuzz: $(VENV)/installed-dev $(VENV)/installed-fuzz
	SANSMCP_FUZZ_SEEDS=10 $(PYTEST) -n 2 tests/fuzz/test_servers.py tests/fuzz/test_clients.py
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# CHAOS="--fastmcp /path/to/python" adds FastMCP, from an environment that has it.
chaos: $(VENV)/installed-dev
	$(BIN)/python -m tests.interop.chaos --write docs/testing.md $(CHAOS)

# FLEET="--store sqlite --calls 300 --seed 7"; needs haproxy and redis-server.
fleet: $(VENV)/installed-dev
	$(BIN)/python -m tests.fleet --seconds $(SECONDS) $(FLEET)

schemas: $(VENV)/installed-dev
	$(BIN)/python -m tests.schemas

bench: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.all

# The bridge beside three others: some 20 minutes more.
bench-bridges: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.bridge

bench-quick: $(VENV)/installed-bench
	$(BIN)/python -m benchmarks.all --quick

# Puts the plots and ratios of the last runs, which are in build/bench, into the checkout.
bench-plots:
	$(PYTHON) -m benchmarks.plot

# Each in an environment of its own, because their dependencies exclude each other.
frameworks: $(VENV)/installed-dev
	$(BIN)/python -m tests.frameworks

# The documentation site, in build/site.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

screenshots: $(VENV)/installed-dev
	$(BIN)/python -m tests.docs.screenshots

release-check: $(VENV)/installed-dev
	$(BIN)/python -m tests.release_check

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf $(VENV)

# Installed again only when what is needed has changed. WITHOUT="jiter msgspec" leaves these out.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(VENV)/installed-%: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[$*]' $(CONSTRAINTS)
	$(if $(WITHOUT),$(BIN)/python -m pip uninstall --quiet --yes $(WITHOUT))
	touch $@
