"""Replacements of Slurm's commands, for faults and for job states that are hard to reproduce."""

import itertools
import json

import hpcrun
from hpcrun.jobs.runs import Run, list_runs


class FakeSlurm:
    """Slurm commands that record their calls.

    Args:
        folder: The folder of the commands; it must be on PATH.
    """

    def __init__(self, folder):
        self.folder = folder
        self.ids = itertools.count(1)
        folder.mkdir()
        self.replace_command("sbatch", f"cat {folder}/id")
        self.replace_command("scancel", "true")
        self.replace_command("a.out", "true")  # the program of most jobs
        self.stop_responding()

    def replace_command(self, command, body):
        file = self.folder / command
        file.write_text(f'#!/bin/bash\necho "$*" >>{file}.calls\n{body}\n')
        file.chmod(0o755)

    def calls(self, command):
        file = self.folder / f"{command}.calls"
        return file.read_text().splitlines() if file.exists() else []

    def stop_responding(self):
        """Make squeue and sacct fail."""
        for command in ("squeue", "sacct"):
            self.replace_command(command, "exit 1")

    def set_queue(self, *rows):
        """Set the rows that squeue prints: id, state, reason, nodes, elapsed, limit, command."""
        (self.folder / "queue").write_text("".join(f"{'|'.join(map(str, row))}\n" for row in rows))
        self.replace_command("squeue", f"cat {self.folder}/queue")
        running = {str(row[0]) for row in rows if row[1] == "RUNNING" and row[2] != "Prolog"}
        for run in (one for found in list_runs() for one in (found, *found.tasks)):
            if run.job_id in running:
                (run.directory / "starts.jsonl").touch()  # its script has started

    def submit(self, name="a.out", job_id=None, **more):
        """Submit a job, which gets the next id."""
        (self.folder / "id").write_text(str(job_id or next(self.ids)))
        return Run(hpcrun.submit(None, ["a.out"], site="slurm", job_name=name, **more).directory)

    def start(self, run):
        """Write the blank record of a job whose script handles signals."""
        (run.directory / "exit.json").write_text(" " * 1023 + "\n")

    def write_exit_record(self, run, code=0, at=75):
        """Write the exit record of a job that started 10 s after the epoch."""
        reason = f"the ranks ended with exit code {code}" if code else "completed"
        record = {"exit_code": code, "reason": reason, "host": "n1", "started": 10, "ended": at}
        (run.directory / "exit.json").write_text(json.dumps(record))
