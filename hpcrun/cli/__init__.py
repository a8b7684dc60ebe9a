"""The command line: arguments in, one call, output out. No logic here."""

import atexit
import gc

# Most commands end within a second, of which the garbage collector would take a fifth, a large part of it at exit.
gc.set_threshold(200_000)
atexit.register(gc.freeze)
