"""Job scripts that run as Slurm jobs, with fake commands of Slurm."""

import os
import shlex
import signal
import subprocess

from tests.bash_library import source_commands
from tests.shell.job_script import Job
from tests.waiting import wait_until


class SlurmJob(Job):
    """A script that runs as the Slurm job 7, with fake commands that write their arguments to the file calls."""

    scheduler = "slurm"

    def __init__(self, folder):
        super().__init__(folder)
        path = f"{folder}/bin:{os.environ['PATH']}"
        self.environ = {"PATH": path, "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
        (folder / "calls").touch()
        (folder / "bin").mkdir()
        for name in ("scontrol", "sbatch", "scancel", "srun"):
            self.fake(name)
        self.run.mkdir(parents=True)

    def fake(self, name, commands=""):
        """Write a fake command; `commands` is what it does after it has added its line to the file calls."""
        file = self.folder / "bin" / name
        file.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.folder}/calls\n{commands}\n')
        file.chmod(0o755)

    def calls(self):
        """Return the calls of the fake commands, but not those that only ask for what Slurm knows."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not line.startswith("scontrol show")]

    def end(self, program, *, setup="", environ=None, **how):
        """Run the job with a program of sh as its rank; return how it ended: reason, and whether it is requeued."""
        words, environ = f"@rank sh -c {shlex.quote(program)}", self.environ | (environ or {})
        code, self.out, self.err = self(setup, words=words, environ=environ, **how)
        record = self.record()
        assert record["exit_code"] == code
        return record["reason"], record["requeued"]

    def end_by(self, *names, **how):
        """Run the job, send signals to its script, and return how it ended; the rank prints the signals it gets."""
        traps = "trap 'echo got TERM; code=143' TERM; trap 'echo got USR2; code=140' USR2"
        program = f"{traps}; echo ready; until [ -e {self.folder}/go ]; do sleep 0.05; done; exit $code"
        file = self.script(words=f"@rank sh -c {shlex.quote(program)}", **how)
        with self.started(file, **self.environ) as process:
            wait_until(lambda: "ready" in process.stdout.readline())
            os.kill(process.pid, signal.Signals[f"SIG{names[0]}"])
            self.out = wait_until(lambda: "got" in (line := process.stdout.readline()) and line)
            for name in names[1:]:
                os.kill(process.pid, signal.Signals[f"SIG{name}"])
            (self.folder / "go").touch()
            self.out += process.communicate()[0]
        assert self.record()["exit_code"] == process.returncode
        return self.record()["reason"], self.record()["requeued"]

    def earlier_starts(self, key, number):
        """Write the records of earlier starts of the job: the starts that were caused in this way."""
        (self.run / "starts.jsonl").write_text(f'{{"job_id": "7", "{key}": true}}\n' * number)

    def submit(self):
        """Write the files of a run that hpcrun has submitted as the job 7."""
        (self.run / "submitted.json").write_text('{"job_id": "7"}')
        for name in ("job.sh", "7_0_log.out", "7_0_log.err"):
            (self.run / name).touch(0o600)
        return f"--output={self.run}/7_0_log.out --error={self.run}/7_0_log.err"

    def call(self, commands, **environ):
        """Run commands with the functions of slurm.bash; return their output."""
        start = f"HPCRUN_RUN_DIR={self.run} HPCRUN_JOB_ID=7 hpcrun_log_start=0 hpcrun_started=1\n"
        script = f"{start}{source_commands(':', 'slurm')}{commands}"
        environ = os.environ | self.environ | environ
        completed = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)
        return completed.stdout + completed.stderr
