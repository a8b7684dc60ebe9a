"""Slurm's commands as they answer, without a Slurm: for faults, and for jobs in states that are hard to come by."""

import itertools
import json

import hpcrun
from hpcrun.jobs.runs import Run


class FakeSlurm:
    """Commands on PATH, each of which keeps its calls.

    Args:
        folder: Where they lie; it must be on PATH.
    """

    def __init__(self, folder):
        self.folder = folder
        self.ids = itertools.count(1)
        folder.mkdir()
        self.replace_command("sbatch", f"cat {folder}/id")
        self.replace_command("scancel", "true")
        self.stop_responding()

    def replace_command(self, command, body):
        file = self.folder / command
        file.write_text(f'#!/bin/bash\necho "$*" >>{file}.calls\n{body}\n')
        file.chmod(0o755)

    def calls(self, command):
        file = self.folder / f"{command}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def stop_responding(self):
        """Make nothing answer."""
        for command in ("squeue", "sacct"):
            self.replace_command(command, "exit 1")

    def set_queue(self, *rows):
        """Make squeue answer with such rows: id, state, reason, nodes, elapsed, limit, command."""
        (self.folder / "queue").write_text("".join(f"{'|'.join(map(str, row))}\n" for row in rows))
        self.replace_command("squeue", f"cat {self.folder}/queue")

    def submit(self, name="a.out", job_id=None, **more):
        """Submit a job; it gets the next id."""
        (self.folder / "id").write_text(str(job_id or next(self.ids)))
        return Run(hpcrun.submit(None, ["./a.out"], site="slurm", job_name=name, **more).directory)

    def write_exit_record(self, run, code=0, at=75):
        """Write the exit record of a job that began at 10 s, by default in 1970."""
        reason = f"the ranks ended with exit code {code}" if code else "completed"
        record = {"exit_code": code, "reason": reason, "host": "n1", "started": 10, "ended": at}
        (run.directory / "exit.json").write_text(json.dumps(record))
