"""Running one program on many nodes at once: through Slurm, over ssh, or here."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcrun.cleanup.program import program
from hpcrun.cleanup.sweep import KILL_SECONDS
from hpcrun.schedulers.environment import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

AT_ONCE = 64
START_SECONDS = 15.0
"""How long a node may take to start a program before it counts as unreachable."""

_SSH = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5"]
_MARKERS = ("HPCRUN_RUN_DIR", "HPCRUN_JOB_ID")  # what looks for a job's processes is none of them


@dataclass(frozen=True)
class Visit:
    """What is to be done on one node.

    Attributes:
        node: The node.
        ways: Commands that run a Python program on it which they read from stdin; each is tried until one gets there.
        request: What the program is asked, see `hpcrun.cleanup.sweep.main`.
        conf: The slurm.conf of the Slurm that has the node, see `hpcrun.jobs.runs.Run.slurm_conf`.
    """

    node: str
    ways: tuple[tuple[str, ...], ...]
    request: dict[str, Any]
    conf: str | None = None


@dataclass(frozen=True)
class Answer:
    """What a node told.

    Attributes:
        node: The node.
        told: What was found and done there, by run directory; empty where the node was not reached.
        error: Why it was not reached; empty where it was.
        conf: The slurm.conf of the Slurm that has the node: another's may have one of the same name.
    """

    node: str
    told: dict[str, dict[str, Any]]
    error: str = ""
    conf: str | None = None


def here() -> tuple[str, ...]:
    """Return the command for this host."""
    return (sys.executable, "-IS", "-")


def over_ssh(node: str, python: str) -> tuple[str, ...]:
    """Return the command for a node that lets this user in over ssh without a password."""
    return (*_SSH, node, shlex.join(_interpreter(python)))


def in_job(node: str, python: str, job_id: str) -> tuple[str, ...]:
    """Return the command for a node of a Slurm job that runs: a step beside the job's own."""
    return ("srun", f"--jobid={job_id}", "--overlap", "--mem=0", *_one_task(node), *_interpreter(python))


def in_new_job(node: str, python: str, options: Sequence[str]) -> tuple[str, ...]:
    """Return the command for a node of a Slurm cluster: a short job, where there is room for it at once."""
    short = ["--job-name=hpcrun-cleanup", "--time=2", "--immediate=5", *options]
    return ("srun", *short, *_one_task(node), *_interpreter(python))


def _one_task(node: str) -> list[str]:
    return ["--quiet", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mpi=none", "--chdir=/"]


def _interpreter(python: str) -> list[str]:
    """Return the words that start a node's Python: the jobs' own where it is there."""
    return ["sh", "-c", 'command -v "$0" >/dev/null 2>&1 && exec "$0" -IS -; exec python3 -IS -', python]


def call(visits: Sequence[Visit]) -> list[Answer]:
    """Visit nodes, many at once, and return what each told, in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(_visit, visits))


def _visit(visit: Visit) -> Answer:
    environment = {name: value for name, value in clean(visit.conf).items() if name not in _MARKERS}
    text = program(visit.request)
    seconds = START_SECONDS + (visit.request["grace"] + KILL_SECONDS if visit.request["act"] else 0)
    errors = []
    for way in visit.ways:
        answer = _run(way, text, environment, seconds)
        if isinstance(answer, list):
            told = {mark["run_dir"]: one for mark, one in zip(visit.request["marks"], answer, strict=True)}
            return Answer(visit.node, told, conf=visit.conf)
        errors.append(f"{os.path.basename(way[0])}: {answer}")  # noqa: PTH119
    return Answer(visit.node, {}, "; ".join(errors), visit.conf)


def _run(way: Sequence[str], text: str, environment: Mapping[str, str], seconds: float) -> list[dict[str, Any]] | str:
    """Return what a program printed, or why it did not."""
    try:
        process = subprocess.Popen(
            way,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return error.strerror or str(error)
    with process:
        try:
            out, err = process.communicate(text, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # srun then gives back what it has asked for
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
            return f"no answer within {seconds:g} s"
    for line in out.splitlines():
        if line.startswith('{"swept": '):  # a login script may have said something before
            swept: list[dict[str, Any]] = json.loads(line)["swept"]
            return swept
    return (err.strip() or f"exit code {process.returncode} and no answer").splitlines()[-1].removeprefix("srun: ")
