"""The command line: each module parses the arguments of a command, calls other modules, and prints the result."""

import atexit
import gc

# Most commands run for less than a second; garbage collection would take a fifth of it, mostly at exit.
gc.set_threshold(200_000)
atexit.register(gc.freeze)
