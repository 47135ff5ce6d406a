# `make train` and `make test` work first thing on a machine with git, Python >= 3.11, g++ >= 11 and make: both set up .venv.

# -f: no file name patterns, so that SET="model.top_mlp=[64,16]" arrives as it is written.
SHELL := bash
.SHELLFLAGS := -euf -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

MPI ?= mpich
TORCH ?= torch==2.13.0
PYTHON ?=
RANKS ?= 5
ROWS ?= 200000
CRITEO ?=
CONFIG ?= configs/quickstart.toml
SET ?=
# What starts ranks comes first, so that no long file is left for the end.
TESTS ?= tests/end_to_end tests/mpi tests/fuzz tests/unit tests/gpu

# An environment for each MPI, so that two can be compared.
VENV := .venv$(if $(filter-out mpich,$(MPI)),-$(MPI))
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# If it were set, each rank and each process that runs tests would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# A folder for each set of rows; for real rows it depends on the paths, sizes, times of change and order of their files.
ifeq ($(CRITEO),)
RUN := build/quickstart$(if $(filter-out 200000,$(ROWS)),-$(ROWS))
else
QUOTED_CRITEO := '$(subst ','\'',$(CRITEO))'
RUN := build/criteo-$(shell scripts/criteo_files.sh --key $(QUOTED_CRITEO))
ifeq ($(RUN),build/criteo-)
$(error CRITEO names no rows to train on)
endif
endif

.PHONY: help
help: ## list the targets and the variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Variables: MPI=mpich|openmpi|system  TORCH='$(TORCH)'  PYTHON=python3  RANKS=$(RANKS)  ROWS=$(ROWS)"
	@echo "           CRITEO='path/to/train.txt or/day_*'  CONFIG=$(CONFIG)  SET='section.field=value ...'  TESTS='$(TESTS)'"

.PHONY: setup
setup: ## make or renew the environment .venv (the other targets do so by themselves)
	@MPI='$(MPI)' TORCH='$(TORCH)' PYTHON='$(PYTHON)' scripts/setup_environment.sh '$(VENV)'

.PHONY: train
train: $(RUN)/prepared ## train DLRM on RANKS ranks: on synthetic clicks, or on Criteo's with CRITEO=path/to/train.txt
	scripts/run_ranks.sh $(RANKS) bagpipe train $(CONFIG) \
	  data.path=$(RUN)/shards train.output=$(RUN)/run train.overwrite=true $(SET)

# Checked before anything is set up for the comparison.
.PHONY: trained
trained:
	@[ -d $(RUN)/run ] || { echo "nothing to compare with: run make train first" >&2; exit 1; }

.PHONY: reference
reference: trained $(RUN)/prepared ## train again on one rank without cache, and compare with the last `make train` (same variables)
	recorded=$$(python scripts/reference_settings.py $(RUN)/run/config.toml $(SET)); \
	mapfile -t settings <<<"$$recorded"; \
	scripts/run_ranks.sh 1 bagpipe train $(CONFIG) \
	  data.path=$(RUN)/shards train.output=$(RUN)/reference train.overwrite=true "$${settings[@]}" \
	  train.reference_slices=$$(python scripts/count_trainers.py $(CONFIG) $(RANKS) $(SET))
	bagpipe compare $(RUN)/run $(RUN)/reference

$(RUN)/clicks.tsv: data_prep/synthetic/criteo_clicks.py | setup
	@mkdir -p $(@D)
	@rm -f $@
	bagpipe generate --rows $(ROWS) --output $@

ifeq ($(CRITEO),)
$(RUN)/prepared: $(RUN)/clicks.tsv | setup
	@rm -rf $(RUN)/shards # made from other clicks
	bagpipe prepare --format criteo --input '$<' --output $(RUN)/shards
	@touch $@
else
$(RUN)/prepared: | setup
	@mkdir -p $(@D)
	scripts/criteo_files.sh $(QUOTED_CRITEO) | xargs -0 -x bagpipe prepare --format criteo --output $(RUN)/shards --input
	@touch $@
endif

# Three files at a time even on two cores: tests that wait for ranks or for a time limit leave cores idle. Each test
# computes in one thread unless it says otherwise: a second thread would wait longer for its core than it adds.
PYTEST := OMP_NUM_THREADS=1 python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: test
test: setup ## run the tests that matter most: unit, under mpirun on 2, 3 ... ranks, and whole runs
	EXAMPLES_DIVIDED_BY=3 $(PYTEST) -m 'not slow' $(TESTS)

.PHONY: test-all
test-all: test test-slow ## run all tests but those that need root: what make test runs, and the rest

.PHONY: test-slow
test-slow: setup ## run the rest of make test-all alone: more cases, more drawn examples, more faults, tiny benchmarks
	$(PYTEST) -m 'slow or hypothesis' $(TESTS)

.PHONY: test-sanitizers
test-sanitizers: setup ## test the native code as built with AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	tests/sanitizers/run.sh

.PHONY: test-hosts
test-hosts: cluster-packages setup ## test whole runs and the doctor on emulated hosts (root; installs what is missing)
	python -m pytest --ignore=tests/cluster/test_slurm.py tests/cluster

.PHONY: test-cluster
test-cluster: cluster-packages setup ## test the job scripts under a real Slurm on emulated hosts (root; installs Slurm if it is missing)
	@mkdir -p build
	scripts/emulated_hosts.sh --ranks 1,1,1,1,1,1 tests/cluster/with_slurm.sh \
	  python -m pytest --basetemp=build/cluster tests/cluster/test_slurm.py

.PHONY: cluster-packages
cluster-packages:
	tests/cluster/install_packages.sh

.PHONY: lint
lint: setup ## check style, types and shell scripts
	ruff check .
	ruff format --check .
	mypy
	git ls-files --cached --others --exclude-standard '*.sh' '*.env' 'slurm/container/bin/*' .ci/run | xargs shellcheck -x

.PHONY: docs
docs: setup ## build the documentation as a site in build/site, which needs no network; broken links are errors
	scripts/docs/build.sh

.PHONY: bench
bench: setup ## run the benchmarks, one after another; each says on its last line what it measured
	python -m benchmarks all
	scripts/run_ranks.sh 2 python benchmarks/row_reduction.py

.PHONY: wheel
wheel: setup ## build a source archive and a wheel into build/wheels
	scripts/make_wheel.sh build/wheels

.PHONY: clean
clean: ## remove what runs and tools left, but not the environment
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis

.PHONY: clean-cache
clean-cache: ## remove the environments, and Horovod's wheels from the user's cache
	rm -rf .venv .venv-openmpi .venv-system "$${XDG_CACHE_HOME:-$$HOME/.cache}/bagpipe_hpc"
