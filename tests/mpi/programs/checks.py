"""What programs of checks share: each check is a function `check_...`, and all ranks run them in the same order."""

import sys
import traceback

from hpcrun.errors import HpcrunError


def refused(words, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except HpcrunError as error:
        assert (words in str(error), bool(error.hint)) == (True, True), error  # noqa: PT017
    else:
        raise AssertionError(f"not refused: {words}")


def failures(program, chosen=()):
    """Run a program's checks, all or the chosen ones, up to the first that fails; return its traceback by its name."""
    for name, check in list(vars(sys.modules[program]).items()):
        if name.startswith("check_") and (not chosen or name in chosen):
            try:
                check()
            except Exception:  # noqa: BLE001
                return {name: traceback.format_exc()}  # a rank that failed alone is out of step with the others
    return {}
