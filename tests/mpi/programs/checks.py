"""Helpers of programs with checks: all ranks run their functions `check_...` in the same order."""

import sys
import traceback

from hpcrun.errors import HpcrunError


def assert_refused(words, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except HpcrunError as error:
        assert (words in str(error), bool(error.hint)) == (True, True), error  # noqa: PT017
    else:
        raise AssertionError(f"not refused: {words}")


def run_checks(program, selected=()):
    """Run all or the selected checks of a program up to the first failure; return its traceback by its name."""
    for name, check in list(vars(sys.modules[program]).items()):
        if name.startswith("check_") and (not selected or name in selected):
            try:
                check()
            except Exception:  # noqa: BLE001
                return {name: traceback.format_exc()}  # a rank that failed alone is not synchronized any more
    return {}
