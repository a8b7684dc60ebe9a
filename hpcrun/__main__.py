"""The entry point of ``python -m hpcrun``."""

import sys

if not sys.flags.safe_path:
    # do not import from the working directory, which may be a cloned repository with modules of any name
    del sys.path[0]

from hpcrun.cli.main import main

main()
