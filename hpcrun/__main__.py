"""``python -m hpcrun``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, whose modules may be those of a cloned repository

from hpcrun.cli.main import main

main()
