"""``python -m hpcrun``."""

from hpcrun.cli.main import main

main()
