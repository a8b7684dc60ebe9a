"""The entry point of ``python -m hpcrun``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # remove the working directory, which may be a cloned repository with modules of any name

from hpcrun.cli.main import main

main()
