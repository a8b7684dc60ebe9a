"""The bash library of job scripts, for tests that run a part of one."""

import sys

from hpcrun import paths

FUNCTIONS = "protect", "record", "signals", "environment", "container", "launch"


def source_commands(fail='echo "FAIL $1" >&2', *more):
    """Return bash that defines the library's functions, and begins no run.

    Args:
        fail: What hpcrun_fail does before it exits.
        *more: More of its files.
    """
    lines = [f"hpcrun_library={paths.shell_library()} hpcrun_python={sys.executable}"]
    lines += [f"source {paths.shell_library()}/{name}.bash" for name in (*FUNCTIONS, *more)]
    return "\n".join([*lines, f"hpcrun_fail() {{ {fail}; exit 1; }}", ""])
