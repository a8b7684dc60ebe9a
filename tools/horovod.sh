#!/bin/bash
# Create .venv-horovod with Horovod for TensorFlow and PyTorch, built against the MPICH wheel that hpcrun-slurm[train] also
# uses. This needs Python 3.11, a C++ compiler and 5 minutes; Horovod's last release builds with TensorFlow 2.12 to 2.18.
# PyTorch is left out where it requires CUDA's libraries, as in backends.sh, because Horovod would need the CUDA toolkit.
set -euo pipefail
cd "$(dirname "$0")/.."
env=$PWD/.venv-horovod torch=2.13.0
export TF_CPP_MIN_LOG_LEVEL=3
[ ! -e "$env/ready" ] || exit 0
command -v g++ >/dev/null || { echo 'building Horovod needs g++' >&2; exit 1; }
python=
for candidate in python3.11 .venv/bin/python; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo 'Horovod needs Python 3.11: its TensorFlow has no wheel for a later one' >&2; exit 1; }

echo "Creating .venv-horovod (500 MB of wheels, then 5 minutes to build)"
rm -rf .venv-horovod
"$python" -m venv .venv-horovod
pip=("$env/bin/python" -m pip --disable-pip-version-check --quiet)
# Its setup.py needs pkg_resources, its CMakeLists a CMake before 4.
"${pip[@]}" install 'setuptools<81' wheel 'cmake<4' tensorflow-cpu==2.15.1 mpich mpi4py cloudpickle packaging psutil pyyaml
required=$("${pip[@]}" install --dry-run --only-binary :all: --report - "torch==$torch" || true)
if [ -z "$required" ] || grep -qE '"name": "(nvidia|cuda)-' <<<"$required"; then
  echo "torch==$torch has no wheel for this platform without CUDA's libraries: only TensorFlow" >&2
  frameworks=(tensorflow) pytorch=HOROVOD_WITHOUT_PYTORCH=1
else
  "${pip[@]}" install "torch==$torch"
  frameworks=(tensorflow torch) pytorch=HOROVOD_WITH_PYTORCH=1
fi

# Horovod was written for PyTorch's headers in C++14; those of today are in C++20. Nothing else has to change.
"${pip[@]}" download --no-deps --no-binary :all: --no-build-isolation --dest "$env/source" horovod==0.28.1
tar -xzf "$env/source/horovod-0.28.1.tar.gz" --strip-components 1 -C "$env/source"
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 20)/' "$env/source/horovod/torch/CMakeLists.txt"
# Do not use pip's cache: a cached build may be linked against another MPI.
env "$pytorch" PATH="$env/bin:$PATH" CMAKE_PREFIX_PATH="$env" HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_MPI=1 \
  HOROVOD_WITHOUT_GLOO=1 HOROVOD_WITHOUT_MXNET=1 \
  "${pip[@]}" install --no-cache-dir --no-build-isolation --no-deps "$env/source"
rm -rf "$env/source"
for framework in "${frameworks[@]}"; do "$env/bin/python" -c "import horovod.$framework"; done
touch "$env/ready"
