"""JSON protocol of the child processes in which hpcrun uses Keras: one request on stdin, replies on stdout."""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.train.types import Json


def serve(answer: Callable[[Json, Callable[[int, int], None]], Json]) -> None:
    """Read a request from stdin, and print lines of JSON: progress, and then the result or an error.

    Args:
        answer: Function that returns the result, given the request and a progress callback with arguments (done,
            total).
    """
    request = json.load(sys.stdin)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # redirects stdout to stderr, because libraries print to stdout

    def reply(**values: Json) -> None:
        print(json.dumps(values), file=replies, flush=True)

    try:
        reply(result=answer(request, lambda done, total: reply(done=done, total=total)))
    except HpcrunError as error:
        reply(error=error.message, hint=error.hint)
    except ImportError as error:
        reply(error=str(error), missing=error.name)
    except OSError as error:
        hint = "free some disk space, or set TMPDIR to a folder that has some" if error.errno == errno.ENOSPC else None
        reply(error=f"{error.filename or 'a file'}: {error.strerror or error}", hint=hint)
