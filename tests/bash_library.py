"""The bash library of job scripts, for tests that run parts of a script."""

import sys

from hpcrun import paths

FUNCTIONS = "protect", "record", "signals", "environment", "stage", "container", "world", "outcome", "launch"


def source_commands(fail='echo "FAIL $1" >&2', *more):
    """Return bash commands that load the library's functions without starting a run.

    Args:
        fail: The command that hpcrun_fail runs before it exits.
        *more: Names of further files of the library.
    """
    lines = [f"hpcrun_library={paths.shell_library()} hpcrun_python={sys.executable}"]
    lines += [f"source {paths.shell_library()}/{name}.bash" for name in (*FUNCTIONS, *more)]
    return "\n".join([*lines, f"hpcrun_fail() {{ {fail}; exit 1; }}", ""])
