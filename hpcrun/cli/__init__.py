"""The command line: each module parses the arguments of a command, calls other modules, and prints the result."""

import atexit
import gc

# Most commands run for less than a second; garbage collection, mostly at exit, would take a fifth of that time.
gc.set_threshold(200_000)
atexit.register(gc.freeze)
