# Every target sets up the environment that it needs, in .venv.
SHELL := /bin/bash
BIN := .venv/bin
PARALLEL := -n 4 --dist loadfile --no-loadscope-reorder --durations 25
unexport PYTHONDONTWRITEBYTECODE  # without bytecode, each command compiles hpcrun, and each test process all tests

.PHONY: help setup demo test test-thorough peers test-fast check cluster cluster-down dist bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/ready  ## create .venv with hpcrun and its development tools
.venv/ready: pyproject.toml tools/setup.sh
	bash tools/setup.sh
	touch $@

demo: setup  ## train LeNet-5 on two ranks on this machine
	$(BIN)/hpcrun submit lenet5 --site local --ntasks 2 --wait

test: setup  ## run the tests, on a real Slurm where Debian packages can be installed
	$(MAKE) --jobs=2 --output-sync=target check peers
	$(BIN)/python -m pytest $(PARALLEL) -m 'not thorough'

test-thorough: setup peers  ## run additional tests: faults, restarts, sweeps on Slurm; more on JAX and PyTorch
	bash tools/apptainer.sh || echo 'Skipping the tests of containers.'
	$(BIN)/python -m pytest $(PARALLEL) -m thorough

peers: setup  # install Slurm, Open MPI, JAX and PyTorch
	$(BIN)/python -m tests.cluster install
	bash tools/openmpi.sh
	bash tools/backends.sh

test-fast: setup  ## run the quick tests that start neither jobs nor MPI
	$(BIN)/python -m pytest -q -n 4 --dist worksteal -m 'not mpi and not thorough and not slow' tests/unit tests/golden

check: setup  ## run the linters, the type checker and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/shellcheck --shell=bash hpcrun/shell/*.bash
	$(BIN)/mypy
	$(BIN)/lint-imports

cluster: setup  ## start a real Slurm with two hosts on this machine (needs root, Debian or Ubuntu)
	$(BIN)/python -m tests.cluster install
	$(BIN)/python -m tests.cluster up
	@echo 'Now, in bash:  source .venv/bin/activate; source <(python -m tests.cluster env); sinfo'
	@echo 'Its hosts have a private /tmp: work below this folder or your home. To stop it:  make cluster-down'

cluster-down:  ## stop the cluster and remove its files
	$(BIN)/python -m tests.cluster down
	@echo 'Stopped the cluster and its jobs. In shells that used it:  unset SLURM_CONF'

dist: setup  ## build the wheel and the source distribution, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: setup  ## compare the speed of commands and communication with other programs
	$(BIN)/python benchmarks/commands.py
	$(BIN)/python benchmarks/nodes.py
	$(BIN)/python benchmarks/status.py
	$(BIN)/python benchmarks/why.py
	$(BIN)/python benchmarks/nodelist.py
	$(BIN)/python benchmarks/input.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/pipeline.py
	bash tools/horovod.sh || echo 'Skipping Horovod.'
	$(BIN)/python benchmarks/allreduce.py
	$(BIN)/python benchmarks/strategies.py

clean:  ## remove the environments and build outputs
	rm -rf dist .apptainer .venv .venv-openmpi .venv-backends .venv-bench .venv-horovod
