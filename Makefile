# Every command of the project. CI runs nothing that is not a target here.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
SEEDS ?= 0:200
RUN := .venv/bin/python
PIP := .venv/bin/pip install --quiet --disable-pip-version-check

.PHONY: setup demo test check sim model mutants bench bench-handoff bench-long-kept bench-catchup plans faults compat fuzz clean

# The virtual environment: what the product needs, then what its developers need.
# Each runs again only when pyproject.toml has changed.
.venv/bin/pip:
	@echo "setting up .venv: this takes a minute the first time"
	@$(PYTHON) -m venv .venv

.venv/product.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e . && touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e '.[dev]' && touch .venv/product.stamp $@

.venv/bench.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e '.[bench]' && touch .venv/product.stamp $@

setup: .venv/dev.stamp

# Three real nodes and a real Kafka client; needs nothing but the product's own dependencies.
demo: .venv/product.stamp
	.venv/bin/evenkeel demo

test: setup
	$(RUN) -m pytest

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports

# make sim SEEDS=0:200 runs these worlds; make sim SEED=123 replays one.
sim: .venv/product.stamp
	$(RUN) -m simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# The protocol as explicit-state models (needs g++), and the traces of 200 worlds judged by its rules;
# ARGS=--quick takes about a minute.
model: .venv/product.stamp
	$(RUN) -m simulator.model $(ARGS)

# Each planted bug against the swarm, and what that misses against the tests; writes docs/mutants.md.
mutants: setup
	$(RUN) -m simulator.mutation $(ARGS)

bench: .venv/product.stamp
	$(RUN) -m benchmarks $(ARGS)

# How long the balancer's planner thinks: hundreds of groups on ten nodes.
plans: .venv/product.stamp
	$(RUN) -m benchmarks.planner $(ARGS)

# The four ways to hand a group over, 50 moves each, little load and much (30 minutes; ARGS="--moves 5").
bench-handoff: .venv/bench.stamp
	$(RUN) -m benchmarks.handoff --page docs/handoff.md --plot docs/images/handoff.png $(ARGS)

# What data costs that is kept longer than the log (ADR 20; 8 minutes on a quiet disk; ARGS="--rounds 1").
bench-long-kept: .venv/product.stamp
	$(RUN) -m benchmarks.long_kept --rounds 3 $(ARGS)

# How soon a node with much data serves again, and how it catches up (docs/operations.md).
bench-catchup: .venv/product.stamp
	$(RUN) -m benchmarks.catchup $(ARGS)

# The tests that start real node processes and hurt them, in full dose (docs/exam.md): about an hour.
# `make test` has all of them, the long ones as a taste. ARGS="-k crash" chooses.
faults: setup
	EXAM=full $(RUN) -m pytest -m cluster -v -o faulthandler_timeout=1800 $(ARGS)

# Every common Kafka client against three real nodes; writes docs/compat.md.
.venv/compat.stamp: pyproject.toml | .venv/dev.stamp
	$(PIP) -e '.[dev,compat]' && touch .venv/product.stamp .venv/dev.stamp $@

compat: .venv/compat.stamp
	$(RUN) -m tests.compat $(ARGS)

# Every decoder under mutated input, each target for its share of the time.
fuzz: setup
	$(RUN) -m tests.fuzz --minutes $(or $(MINUTES),10) $(ARGS)

# What can be made again; ./data, where clusters keep their logs, stays.
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
