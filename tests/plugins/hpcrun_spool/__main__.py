"""Submit the script of a run directory: python -m hpcrun_spool RUN_DIRECTORY."""

import sys

from hpcrun_spool import enqueue

print(enqueue(sys.argv[1]))
