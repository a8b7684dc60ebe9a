#!/bin/bash
# Makes .venv-backends: .venv's packages and, for Keras's other backends, JAX and PyTorch (1.5 GB).
# PyPI's own PyTorch for Linux on x86 brings some GB of CUDA libraries, which no test needs. So PyTorch is taken only where
# its requirements name none: PyPI's wheel for another machine, or a CPU wheel in a folder of $PIP_FIND_LINKS
# (https://download.pytorch.org/whl/cpu has them). Elsewhere it is left out, and its tests say so.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0 jax=0.10.2
[ ! -e .venv-backends/ready ] || exit 0
rm -rf .venv-backends
.venv/bin/python -m venv --without-pip .venv-backends
pip() { .venv/bin/python -m pip --python .venv-backends/bin/python "$@" --disable-pip-version-check --quiet; }
pip install "jax==$jax" mpich  # mpi4py looks for its MPI beside the interpreter
# pip reports what it would install, after reading no more than the wheels' metadata.
wants=$(pip install --dry-run --only-binary :all: --report - "torch==$torch" || true)
if [ -z "$wants" ]; then
  echo "torch==$torch has no wheel here: left out" >&2
elif grep -qE '"name": "(nvidia|cuda)-' <<<"$wants"; then
  echo "torch==$torch would bring CUDA's libraries here: left out" >&2
else
  pip install "torch==$torch"
fi
site=$(.venv-backends/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/hpcrun-packages.pth"
pwd >>"$site/hpcrun-packages.pth"
touch .venv-backends/ready
