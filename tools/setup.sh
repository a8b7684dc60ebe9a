#!/bin/bash
# Create .venv with hpcrun, its train extra and its development tools, all from PyPI; needs only git and Python.
set -euo pipefail
cd "$(dirname "$0")/.."

python=
for candidate in python3 python3.13 python3.12 python3.11; do
  if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo "hpcrun needs Python 3.11 to 3.13; found: $(python3 --version 2>&1)" >&2; exit 1; }

if [ ! -x .venv/bin/pip ]; then
  echo "Creating .venv with $("$python" --version)"
  rm -rf .venv
  if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv .venv
  else  # On Debian, ensurepip needs the package python3-venv: install pip from PyPI instead, which needs no root
    "$python" -m venv --without-pip .venv
    .venv/bin/python tools/get_pip.py
  fi
fi

echo "Installing hpcrun-slurm[train-cpu,data,report,dev] (about 400 MB the first time)"
report_progress() { until read -rt 5 _; do echo "  ... ${SECONDS} s so far; .venv has $(du -sm .venv | cut -f1) MB"; done <> <(:); }
report_progress &
trap 'kill $!' EXIT
# --no-compile: Python compiles the modules that it imports; to compile all takes 30 s.
.venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[train-cpu,data,report,dev]'
