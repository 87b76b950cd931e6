# Every command of the project. CI runs nothing that is not a target here.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
SEEDS ?= 0:200
RUN := .venv/bin/python
PIP := .venv/bin/pip install --quiet --disable-pip-version-check

.PHONY: setup demo test unit check sim sim-nodes model mutants bench bench-limits bench-handoff bench-placements bench-machines bench-long-kept bench-catchup bench-spark bench-spark-write plans reading decisions faults compat side-by-side suites properties fuzz spark dashboards wheel changelog clean

# The virtual environment: what the product needs, then what its developers need.
# Each runs again only when pyproject.toml has changed.
.venv/bin/pip:
	@echo "setting up .venv: this takes a minute the first time"
	@$(PYTHON) -m venv .venv

.venv/product.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e . && touch $@

.venv/dev.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e '.[dev]' && touch .venv/product.stamp $@

.venv/spark.stamp: pyproject.toml | .venv/bin/pip
	@echo "installing Spark: 450 MB, and pip builds a wheel of it once"
	$(PIP) -e '.[dev,spark]' && touch .venv/product.stamp .venv/dev.stamp $@

.venv/bench.stamp: pyproject.toml | .venv/bin/pip
	$(PIP) -e '.[bench]' && touch .venv/product.stamp $@

# Spark's parts are for those who have Java.
ifneq ($(or $(wildcard $(JAVA_HOME)/bin/java),$(shell command -v java)),)
setup: .venv/spark.stamp
else
setup: .venv/dev.stamp
	@echo "no java here: Spark is not installed, and tests that need it will be skipped"
endif

# Three real nodes and a real Kafka client; needs nothing but the product's own dependencies.
demo: .venv/product.stamp
	.venv/bin/evenkeel demo

test: setup
	$(RUN) -m tests $(ARGS)

# Those that start no process and no Spark, on all cores: four minutes on two.
unit: .venv/dev.stamp
	$(RUN) -m pytest -n auto -m "not (cluster or spark)" $(ARGS)

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(RUN) tools/structure.py

# make sim SEEDS=0:200 runs these worlds; make sim SEED=123 replays one.
sim: .venv/product.stamp
	$(RUN) -m simulator $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

# Worlds of whole nodes (docs/simulator.md, "Whole nodes"): make sim-nodes SEEDS=0:100.
sim-nodes: .venv/dev.stamp
	$(RUN) -m simulator.whole --seeds $(SEEDS)

# The protocol as explicit-state models (needs g++), and the traces of 200 worlds judged by its rules;
# ARGS=--quick takes about a minute.
model: .venv/product.stamp
	$(RUN) -m simulator.model $(ARGS)

# Each planted bug against the swarm, and what that misses against the tests; writes docs/mutants.md.
mutants: setup
	$(RUN) -m simulator.mutation $(ARGS)

# Everything of docs/benchmarks.md in half an hour; ARGS=--quick in ten minutes, ARGS="--only requests" alone.
bench: .venv/product.stamp
	$(RUN) -m benchmarks $(ARGS)

# What this machine can do at all, and what share of a bare replicated append we reach
# (docs/performance.md; 9 minutes; ARGS="--quick --only requests-64x1" for one load).
bench-limits: .venv/product.stamp
	$(RUN) -m benchmarks.limits $(ARGS)

# How long the balancer's planner thinks: hundreds of groups on ten nodes.
plans: .venv/product.stamp
	$(RUN) -m benchmarks.studies.planner $(ARGS)

# What it costs to read the records of a batch before it is stored, for each codec.
reading: .venv/product.stamp
	$(RUN) -m benchmarks.studies.record_reading $(ARGS)

# What it costs to ask whether a client may do something, with few rules and with many.
decisions: .venv/product.stamp
	$(RUN) -m benchmarks.studies.access_decisions $(ARGS)

# The four ways to hand a group over, 50 moves each, little load and much (30 minutes; ARGS="--moves 5"), and
# what clients of several languages see of them (20 more; alone: ARGS=--only-clients; languages that are missing are
# skipped: Node.js with npm, Java with Maven, Go).
bench-handoff: .venv/bench.stamp
	$(RUN) -m benchmarks.handoff --page docs/handoff.md --plot docs/images/handoff.png $(ARGS)

# What a message costs with one and more nodes on a machine, each with a quota of CPU time: needs root
# (2 minutes; docs/machines.md; ARGS="--processes 1,2,4").
bench-machines: .venv/product.stamp
	$(RUN) -m benchmarks.machines.processes $(ARGS)

# All masters on one node against masters evenly spread, by message size, each node behind a network
# link of its own: needs root, see docs/benchmarks.md (15 minutes; ARGS="--pairs 1"),
# and the report of all such runs, where Spark is installed.
bench-placements: .venv/product.stamp
	$(RUN) -m benchmarks.placement.placements --samples bench-results/placements $(ARGS)
	@if $(RUN) -c "import pyspark" 2>/dev/null; \
	then $(RUN) -m pipeline report bench-results/placements --output bench-results/placements-report; \
	else echo "no report, only samples: Spark is not installed (make setup, where there is Java)"; fi

# What data costs that is kept longer than the log (ADR 20; 8 minutes on a quiet disk; ARGS="--rounds 1").
bench-long-kept: .venv/product.stamp
	$(RUN) -m benchmarks.studies.long_kept --rounds 3 $(ARGS)

# How soon a node with much data serves again, and how it catches up (docs/benchmarks.md).
bench-catchup: .venv/product.stamp
	$(RUN) -m benchmarks.suites.catchup $(ARGS)

# What a row costs through Spark, beside a plain client (docs/spark.md; 5 minutes; ARGS="--sections read").
bench-spark: .venv/spark.stamp
	$(RUN) -m benchmarks.studies.spark $(ARGS)

# Writing a topic from Spark against a plain client (5 minutes; needs Java; ARGS="--rounds 1").
bench-spark-write: .venv/product.stamp
	$(RUN) -m benchmarks.studies.spark_write $(ARGS)

# The tests that start real node processes and hurt them, in full (docs/exam.md): about an hour.
# `make test` runs a short form of the long ones. ARGS="-k crash" chooses.
faults: setup
	EXAM=full $(RUN) -m pytest -m cluster -v -o faulthandler_timeout=1800 $(ARGS)

# Every common Kafka client against three real nodes; writes docs/compat.md. Those of other languages
# need that language (Java with Maven, ...), and are skipped without it: ARGS="--language Java".
.venv/compat.stamp: pyproject.toml | .venv/dev.stamp
	$(PIP) -e '.[dev,compat]' && touch .venv/product.stamp .venv/dev.stamp $@

compat: .venv/compat.stamp
	$(RUN) -m tests.compat $(ARGS)

# The same requests to a real Apache Kafka broker (from Maven) and to a node; what differs without a
# reason in tests/compat/side_by_side/differences.toml fails. ARGS="--story groups" for some.
side-by-side: .venv/compat.stamp
	$(RUN) -m tests.compat.side_by_side $(ARGS)

# The tests of librdkafka, franz-go and aiokafka themselves: SUITES=DIR holds their checkouts.
suites: .venv/dev.stamp
	$(RUN) -m tests.suites $(SUITES) $(ARGS)

# Every property with examples that `make test` does not draw, TIMES times over (3 minutes each).
properties: setup
	for _ in $$(seq $(or $(TIMES),3)); do \
	$(RUN) -m pytest -m "hypothesis and not cluster" -q --hypothesis-profile=others $(ARGS) || exit 1; done

# Every decoder under mutated input, each target for its share of the time.
fuzz: setup
	$(RUN) -m tests.fuzz --minutes $(or $(MINUTES),10) $(ARGS)

# The Spark source, sink and jobs (docs/spark.md): local[2] on three real nodes. EXAM=full for all of it.
spark: .venv/spark.stamp
	$(RUN) -m pytest tests/pyspark_evenkeel tests/pipeline tests/spark -o faulthandler_timeout=1800 $(ARGS)

# What Grafana and Prometheus read, from the descriptions in dashboards/*.py.
dashboards: .venv/product.stamp
	$(RUN) -m dashboards

# Two wheels in dist/, each of one package: the product, and the Spark data source (ADR 57).
wheel: .venv/dev.stamp
	.venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist . tools/spark_wheel
	@ls dist/*.whl

# changelog.d/*.md into CHANGELOG.md, below the version that is being made (wire/software.py).
changelog:
	$(PYTHON) tools/changelog.py

# What can be made again; ./data, where clusters keep their logs, stays.
clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
