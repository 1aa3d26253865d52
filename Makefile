# make demo     watch the library survive a server and a network that disconnect
# make quick    after each change: ruff, mypy of the packages, and the tests of the core
# make test     what has to hold on your machine; .ci/run runs the rest
# make coverage  tests of the folders that changed: which branches of them does no test take?
# make check    static checks of all files; make covered: the core, every branch of it
# make rest     what make test leaves out; make thorough: further cases of tests
# make flakes RUNS=20  tests with sockets, processes and threads, several runs at a time: what fails?
# make conformance   the official conformance suite, against every adapter
#     CONFORMANCE="--draw 2 --seed 7": all scenarios on trio, half of them on each of the others
# make requirements  which rules of the protocol are proven, and docs/requirements.md
# make requirements-proof  break rules of the protocol, and see the tests of each fail
# make simulate SECONDS=600   worlds of fresh seeds, until one fails or the time is over;
#     SIMULATE="--from N": of the seeds from N on
# make planted  plant bugs, and see the simulator find them; PLANTED="--draw 3", or names
# make fuzz SECONDS=600   100,000 mutations, then fuzzing by coverage for so long
# make chaos    clients and servers of several libraries, with a network that breaks between them
# make fleet SECONDS=600   kill the processes of a fleet behind HAProxy and Redis; who is not told?
#     MIXED=COMMIT: half of them are of an earlier commit, and one adds members to its records
#     FLEET="--fault full", "--fault stop": a store that refuses writes, processes that stand still
# make windows  tests with Python for Windows, under wine; WINDOWS="tests/codecs -x" for others
# make schemas  sansmcp/schema.py again, from the schemas of a pinned npm package
# make count    Python calls and allocations of a call, an event and a line, against a file
# make bench    parsers, servers, clients and more next to others, in at most 15 minutes, and
#     build/bench/index.html; make bench-quick: in two minutes
# make bench-plots   put the plots and ratios of the last run into the checkout
# make docs     the documentation site, in build/site
# make screenshots   what the command shows: both pictures, and the sessions in docs/command.md
# make frameworks   tools for LangChain, smolagents, Pydantic AI and OpenAI Agents, in environments
# make release-check   what has to hold before a release; RELEASE="--tag v1.0.0" compares the version,
#     RELEASE=--quick builds and tries out the wheel of any commit
# make format   put the code into its shape

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PYTEST = $(BIN)/python -m pytest -q --dist worksteal
# Tests wait for sockets and processes: one worker more than there are processors makes use of that.
WORKERS = $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")
CORE = tests/codecs tests/vocabulary tests/client tests/server tests/auth tests/tokens \
	tests/http11 tests/http2 tests/relay tests/testing tests/stores/test_stores.py tests/loop/test_async_stores.py \
	tests/trio/test_check_adapter.py tests/typed
# Left to .ci/run: other implementations, how work grows, documents and tools of the checkout, the
# simulator (make simulate), commands for developers of the protocol, and what starts many processes.
REST = tests/browser tests/conformance tests/docs tests/fuzz/test_running_servers.py tests/growth tests/guarantees \
	tests/house/test_imports.py tests/house/test_packaging.py tests/interop tests/lines \
	tests/planted/test_patches.py tests/requirements_proof tests/schemas tests/cli/test_check.py \
	tests/cli/test_completion.py tests/cli/test_replay.py tests/cli/test_workers.py \
	tests/pytest_plugin/test_plugin.py tests/simulation/test_simulator.py tests/stores/test_matrix.py \
	tests/stores/test_processes.py tests/stores/test_proxy.py tests/stores/test_redis.py

# Compiled files save each worker ten seconds of rewriting assertions, and each process of a test some.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test tests packages check coverage covered properties core others rest thorough flakes \
	conformance simulate planted requirements requirements-proof fuzz chaos fleet schemas windows count bench \
	bench-bridges bench-quick bench-plots docs screenshots frameworks release-check format clean

demo: $(VENV)/installed-cli
	$(BIN)/sansmcp demo

quick: $(VENV)/installed-test
	$(MAKE) packages
	SANSMCP_EXAMPLES=5 $(PYTEST) -n $(WORKERS) -m "not thorough" $(CORE)

test: $(VENV)/installed-test
	$(MAKE) packages
	$(MAKE) tests

# Alone, for the lowest versions of the dependencies, whose types say less. DRAW="--draw 2 7" runs
# half of them, drawn by that seed.
tests: $(VENV)/installed-test
	$(PYTEST) -n $(WORKERS) -m "not thorough" $(REST:%=--ignore=%) --note-passed=$(VENV)/passed $(DRAW)

packages: $(VENV)/installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy sansmcp adapters

check: $(VENV)/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 sansmcp adapters
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin sansmcp adapters
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/pyright --pythonpath $(BIN)/python --pythonplatform Windows sansmcp adapters
	$(BIN)/pyright --pythonpath $(BIN)/python --pythonplatform Darwin sansmcp adapters

coverage: $(VENV)/installed-dev
	$(BIN)/python -m tests.coverage_of_changes $(COVERAGE)

# The core, and what it publishes for tests of others: its tests take every branch.
covered: $(VENV)/installed-dev
	$(PYTEST) -n $(WORKERS) $(CORE) --cov

# Properties alone, with many examples: coverage would make them slow.
properties: $(VENV)/installed-dev
	SANSMCP_EXAMPLES=100 $(PYTEST) -n $(WORKERS) -m "hypothesis and not thorough" tests

core: $(VENV)/installed-test
	$(PYTEST) -n $(WORKERS) $(CORE)

# PASSED="tests/..." leaves out files that have passed on another version.
others: $(VENV)/installed-dev
	$(PYTEST) -n $(WORKERS) -m "not thorough" $(CORE:%=--ignore=%) $(PASSED:%=--ignore=%)

rest: $(VENV)/installed-dev
	$(PYTEST) -n $(WORKERS) -m "not thorough" $(REST)

# What the others leave out; make core and make covered run all tests of the core.
thorough: $(VENV)/installed-dev
	$(PYTEST) -n $(WORKERS) -m thorough $(CORE:%=--ignore=%) $(DRAW)

# TESTS=tests/loop runs a part of them.
RUNS = 20
flakes: $(VENV)/installed-dev
	$(BIN)/python -m tests.flakes --runs $(RUNS) $(TESTS)

# The verdicts are in build/conformance.json, too.
conformance: $(VENV)/installed-dev
	$(BIN)/python -m tests.conformance --json build/conformance.json $(CONFORMANCE)

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
	SANSMCP_FUZZ_SEEDS=10 $(PYTEST) -n 2 tests/fuzz/test_servers.py tests/fuzz/test_clients.py \
		tests/fuzz/test_http2.py
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(FUZZ)

# CHAOS="--fastmcp /path/to/python" adds FastMCP, from an environment that has it.
chaos: $(VENV)/installed-dev
	$(BIN)/python -m tests.interop.chaos --write docs/testing.md $(CHAOS)

# FLEET="--store sqlite --calls 300 --seed 7"; needs haproxy and redis-server.
fleet: $(VENV)/installed-dev
	$(BIN)/python -m tests.fleet --seconds $(SECONDS) $(if $(MIXED),--mixed $(MIXED)) $(FLEET)

windows: $(VENV)/installed-dev
	$(BIN)/python -m tests.windows $(WINDOWS)

schemas: $(VENV)/installed-dev
	$(BIN)/python -m tests.schemas

# COUNT=--write replaces the file, in the commit that changes the counts and says why.
count: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.count $(COUNT)

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
	$(BIN)/python -m tests.release_check $(RELEASE)

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
