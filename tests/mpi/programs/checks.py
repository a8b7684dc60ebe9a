"""Helpers of programs with checks: all ranks run their functions `check_...` in the same order."""

import itertools
import sys
import traceback

import hpcrun.train
from hpcrun.errors import HpcrunError

_turns = itertools.count()


def on_one_rank(function):
    """Return on all ranks what a function returns on one; the ranks take turns.

    Plain Keras gives the same on every rank, and takes most of its time to build and trace a model.
    """
    owner = next(_turns) % hpcrun.train.size()
    returned = function() if hpcrun.train.rank() == owner else None
    hpcrun.train.barrier()  # keeps no core busy
    return hpcrun.train.comm().bcast(returned, owner)


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
