# Each target makes what it needs in .venv; nothing but Python, pip and make is asked for.
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --editable
# Or every process does it, where Python may not keep what it compiles.
COMPILE := $(BIN)/python -m compileall -q src

.PHONY: demo test test-ways test-formats test-remote test-browser test-docs test-cluster test-slurm test-faults torture torture-peers docs reference lint types package test-consumers test-unicode fuzz memory bench environment clean

demo: .venv/installed
	rm -rf out
	$(BIN)/tokenmill prepare sample -o out
	$(BIN)/tokenmill verify out
	$(BIN)/tokenmill inspect out --doc 0 | head -n 5 | cut -c 1-100

# Two processes: most tests keep one core busy. More where they wait.
test: .venv/tests
	$(BIN)/pytest -n 2

# The three known ways: the tokenizer under every start method, the drop-in scripts, the doctor's patches, the guide.
test-ways: .venv/tests
	$(BIN)/pytest -n 2 tests/ways

# Every format: golden bytes, limits, kills; converted there and back; looked into, whoever wrote it.
test-formats: .venv/tests
	$(BIN)/pytest -n 2 tests/formats

# The Hub and S3, by stand-ins on loopback ports that the real clients talk to, with faults.
test-remote: .venv/tests
	$(BIN)/pytest -n 4 tests/remote

# Report and viewer in Chromium, which is installed if that is possible. SCREENSHOTS=folder keeps pictures.
BROWSER_NEEDS := chromium fonts-noto-cjk fonts-noto-color-emoji
test-browser: .venv/browser
	@test -n "$$CHROMIUM" || command -v chromium > /dev/null || command -v chromium-browser > /dev/null || \
		{ test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq $(BROWSER_NEEDS); } || \
		{ echo "make test-browser needs Chromium: apt-get install $(BROWSER_NEEDS), or CHROMIUM=its path"; exit 1; }
	$(BIN)/pytest -n 2 tests/browser

# Every command of README, guides and help, typed for real where its inputs are.
test-docs: .venv/tests
	$(BIN)/pytest -n 2 --dist worksteal tests/guides

# A Ray cluster of several nodes on this machine, with nodes lost and gained, and S3.
test-cluster: .venv/cluster
	$(BIN)/pytest tests/cluster

# The batch file of docs/clusters.md under a real Slurm on this machine, which is installed if that is possible.
SLURM_NEEDS := slurmctld slurmd slurm-client munge
test-slurm: .venv/tests
	@PATH="$$PATH:/usr/sbin"; { command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged; } > /dev/null || \
		{ test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -y -qq --no-install-recommends $(SLURM_NEEDS); } || \
		{ echo "make test-slurm needs Slurm: apt-get install $(SLURM_NEEDS)"; exit 1; }
	$(BIN)/pytest tests/slurm

# Real processes, real signals: killed, starved, corrupted.
test-faults: .venv/tests
	$(BIN)/pytest -n 3 tests/faults

# The long form: some 200 kills, every fault test, and the table of docs/reliability.md; about fifteen minutes.
KILLS ?= 200
torture: .venv/tests
	$(BIN)/python tests/faults/torture.py $(KILLS) --page docs/reliability.md

# What others do under the same faults, from PyPI.
torture-peers:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet datasets tiktoken datatrove orjson
	.venv-peers/bin/python tests/faults/peers.py

# The site, into build/docs; a broken link or anchor, or a page that the navigation does not know, fails.
docs: .venv/docs
	$(BIN)/python tools/reference.py --check
	$(BIN)/sphinx-build -q -W --keep-going --fresh-env docs build/docs

# docs/reference/, from the code.
reference: .venv/installed
	$(BIN)/python tools/reference.py

lint: .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/lint
	$(BIN)/mypy

# Wheel and sdist, each installed into a clean venv and used once.
package: .venv/lint
	rm -rf dist
	$(BIN)/python -m build --quiet
	for file in dist/*.whl dist/*.tar.gz; do \
		rm -rf .venv-package && $(PYTHON) -m venv .venv-package && \
		.venv-package/bin/pip install --quiet $$file && \
		(cd / && $(CURDIR)/.venv-package/bin/tokenmill prepare sample -o $(CURDIR)/.venv-package/out -q && \
		 $(CURDIR)/.venv-package/bin/tokenmill verify $(CURDIR)/.venv-package/out) || exit 1; \
	done
	rm -rf .venv-package

# The trainers' own code reads what tokenmill writes. They need environments of their own, 3 GB of them.
test-consumers: .venv/tests .venv-consumers/ready .venv-streaming/ready
	$(BIN)/pytest tests/consumers

.venv-consumers/ready: tests/consumers/requirements-trainers.txt
.venv-streaming/ready: tests/consumers/requirements-streaming.txt
.venv-consumers/ready .venv-streaming/ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	touch $@

# All 1,112,064 Unicode scalar values, in context, engine against reference; about 10 minutes a core.
test-unicode: .venv/tests
	$(BIN)/python tests/sweep.py unicode --tokenizers $(TOKENIZERS)

# Random documents, engine against reference, for an hour: make fuzz SECONDS=3600 TOKENIZERS="a/tokenizer.json"
SECONDS ?= 3600
fuzz: .venv/tests
	$(BIN)/python tests/fuzz.py --seconds $(SECONDS) --tokenizers $(TOKENIZERS)

# Peak memory over 1 and 10 times the files: make memory CORPUS=folder
memory: .venv/installed
	$(BIN)/python -m benchmarks.memory $(CORPUS)

# Every contender on the same files, and how our cost grows: make bench CORPUS=folder OPTIONS="--rounds 3"
# The contenders' environments are made once, in .venv-bench-*: 5 GB of them.
bench: .venv/installed
	$(BIN)/python -m benchmarks $(CORPUS) $(OPTIONS)

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(INSTALL) .
	$(COMPILE)
	touch $@

.venv/tests: .venv/installed
	$(INSTALL) '.[test]'
	touch $@

.venv/browser: .venv/tests
	$(INSTALL) '.[test,browser]'
	touch $@

.venv/cluster: .venv/tests
	$(INSTALL) '.[test,ray]'
	touch $@

.venv/docs: .venv/installed
	$(INSTALL) '.[docs]'
	touch $@

.venv/lint: .venv/installed
	$(INSTALL) '.[lint]'
	touch $@

# All of these at once, which is quicker than one after another.
environment:
	$(PYTHON) -m venv .venv
	$(INSTALL) '.[test,browser,docs,lint]'
	$(COMPILE)
	touch .venv/installed .venv/tests .venv/browser .venv/docs .venv/lint

clean:
	rm -rf build .venv .venv-bench-* .venv-package .venv-peers .venv-consumers .venv-streaming out dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
