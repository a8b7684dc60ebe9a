#!/bin/bash
# Create .venv-backends: .venv's packages, JAX, PyTorch and Accelerate, for Keras's other backends (1.5 GB).
# PyPI's PyTorch for Linux on x86 requires several GB of CUDA libraries, which no test needs. So this script installs
# PyTorch only if it requires none: PyPI's wheel for another platform, or a CPU wheel in a folder of $PIP_FIND_LINKS
# (from https://download.pytorch.org/whl/cpu). Otherwise it skips PyTorch, and the tests of PyTorch are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0 jax=0.10.2
[ ! -e .venv-backends/ready ] || exit 0
rm -rf .venv-backends
.venv/bin/python -m venv --without-pip .venv-backends
pip() { .venv/bin/python -m pip --python .venv-backends/bin/python "$@" --disable-pip-version-check --quiet; }
pip install --no-compile "jax==$jax" mpich  # mpi4py searches for its MPI next to the interpreter
# pip reports what it would install after reading only the wheels' metadata.
required=$(pip install --dry-run --only-binary :all: --report - "torch==$torch" || true)
if [ -z "$required" ]; then
  echo "torch==$torch has no wheel for this platform: skipped" >&2
elif grep -qE '"name": "(nvidia|cuda)-' <<<"$required"; then
  echo "torch==$torch requires CUDA's libraries on this platform: skipped" >&2
else
  pip install --no-compile "torch==$torch" accelerate
fi
site=$(.venv-backends/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/hpcrun-packages.pth"
pwd >>"$site/hpcrun-packages.pth"
touch .venv-backends/ready
