"""A user of hpcrun's command line, with a home folder of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE


class User:
    """A user on this host.

    Args:
        home: The user's folder.
        variables: More environment variables.
    """

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.variables = variables

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the user's commands."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "HPCRUN_"))}
        return {**inherited, **own_environment(self.home, os.environ["PATH"]), **self.variables}

    def start(self, *argv: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """Start a program as this user, in their home folder."""
        return subprocess.Popen(
            [str(word) for word in argv],
            env={**self.environ, **environment},
            cwd=self.home,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def call(self, *argv: str | Path, timeout: float = 480, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end, whatever its exit code; `timeout` is that on a quiet machine."""
        with self.start(*argv, **environment) as process:
            try:
                out, err = process.communicate(timeout=timeout * PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def hpcrun(self, *argv: str | Path, timeout: float = 480, **environment: str) -> "subprocess.CompletedProcess[str]":
        """Run hpcrun to its end, whatever its exit code."""
        return self.call("hpcrun", *argv, timeout=timeout, **environment)

    def json(self, *argv: str | Path, timeout: float = 480, **environment: str) -> Any:
        """Return the JSON value that an hpcrun command prints."""
        completed = self.hpcrun(argv[0], "--json", *argv[1:], timeout=timeout, **environment)
        assert completed.stdout, completed.stderr
        return json.loads(completed.stdout)

    def log(self, submission: dict[str, Any]) -> str:
        """Return the output and errors of a job, given its `--json` output."""
        run = Path(submission["run_dir"])
        return "".join((run / f"{submission['job_id']}_0_log.{end}").read_text() for end in ("out", "err"))


def own_environment(home: Path, path: str) -> dict[str, str]:
    """Return the variables with which hpcrun keeps all files of a user in their folder."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{path}",
        "HPCRUN_RUN_ROOT": f"{home}/runs",
        "XDG_CONFIG_HOME": f"{home}/config",
        "XDG_STATE_HOME": f"{home}/state",
        "XDG_DATA_HOME": f"{home}/data",
    }
