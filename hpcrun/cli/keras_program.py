"""Programs of `hpcrun.train`, started on this machine, so that hpcrun's commands need not import Keras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import completion
from hpcrun.cli.parameters import recover_submissions
from hpcrun.errors import HpcrunError

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTALL_COMMAND = "pip install 'hpcrun-slurm[train-cpu]'"
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Variables that hide TensorFlow's messages, and make it share GPU memory with other users of this machine."""

SavedModel = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="Job id, last, job name, run directory, or a Keras model.",
        autocompletion=completion.jobs,
        callback=recover_submissions,
    ),
]
BestModel = Annotated[bool, typer.Option("--best", help="Use the model of the best epoch instead of the last.")]


def call(module: str, request: dict[str, Any], report: Callable[[int, int], None] | None = None) -> Any:
    """Run a module of `hpcrun.train`, and return its result.

    Args:
        module: The name of the module in `hpcrun.train`.
        request: The JSON request that the module reads from stdin.
        report: Function that is called with the number of finished items and the number of all items.

    Raises:
        HpcrunError: The module failed, or Keras is not installed.
    """
    python = _find_python()
    command = [python, "-m", f"hpcrun.train.{module}"]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env=_ENVIRONMENT | os.environ
        ) as program,
    ):
        assert program.stdin  # noqa: S101  (for the type checker)
        assert program.stdout  # noqa: S101
        with program.stdin:
            json.dump(request, program.stdin)
        reply: dict[str, Any] = {}
        for line in program.stdout:
            reply = json.loads(line)
            if report and "done" in reply:
                report(reply["done"], reply["total"])
        exit_code = program.wait()
        log.seek(0)
        last_lines = log.read().strip().splitlines()[-10:]
    if "result" in reply:
        return reply["result"]
    if "missing" in reply:
        raise HpcrunError(f"{python} lacks a package that this command needs: {reply['error']}", hint=_INSTALL_COMMAND)
    if "error" in reply:
        raise HpcrunError(reply["error"], hint=reply["hint"])
    lines = "\n".join(["", *last_lines])
    raise HpcrunError(f"{' '.join(command)} ended with exit code {exit_code}:{lines}", exit_code=1)


def _find_python() -> str:
    """Return a Python interpreter that has Keras: the current interpreter, or the interpreter of the site."""
    if find_spec("keras"):
        return sys.executable
    from hpcrun.sites import loader

    python = os.path.expandvars(loader.load_selected_site(None).site.python or "")
    if not Path(python).is_file():
        raise HpcrunError(
            f"this command needs Keras and TensorFlow, which {sys.executable} does not have",
            hint=f"{_INSTALL_COMMAND}, or name a Python that has them in the site file: python = '/path/to/python'",
        )
    return python
