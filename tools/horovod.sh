#!/bin/bash
# Create .venv-horovod with Horovod, built against the MPICH wheel that hpcrun-slurm[train] also uses. This needs Python 3.11,
# a C++ compiler and 3 minutes; Horovod's last release builds with TensorFlow 2.12 to 2.18.
set -euo pipefail
cd "$(dirname "$0")/.."
env=$PWD/.venv-horovod
export TF_CPP_MIN_LOG_LEVEL=3
"$env/bin/python" -c 'import horovod.tensorflow' 2>/dev/null && exit 0
command -v g++ >/dev/null || { echo 'building Horovod needs g++' >&2; exit 1; }
python=
for candidate in python3.11 .venv/bin/python; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo 'Horovod needs Python 3.11: its TensorFlow has no wheel for a later one' >&2; exit 1; }

echo "Creating .venv-horovod (300 MB of wheels, then 3 minutes to build)"
rm -rf .venv-horovod
"$python" -m venv .venv-horovod
pip=("$env/bin/python" -m pip --disable-pip-version-check install --quiet)
# Its setup.py needs pkg_resources, its CMakeLists a CMake before 4.
"${pip[@]}" 'setuptools<70' wheel 'cmake<4' tensorflow-cpu==2.15.1 mpich mpi4py cloudpickle packaging psutil pyyaml
# Do not use pip's cache: a cached build may be linked against another MPI.
PATH=$env/bin:$PATH CMAKE_PREFIX_PATH=$env \
  HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_PYTORCH=1 \
  HOROVOD_WITHOUT_MXNET=1 "${pip[@]}" --no-cache-dir --no-build-isolation --no-deps horovod==0.28.1
"$env/bin/python" -c 'import horovod.tensorflow'
