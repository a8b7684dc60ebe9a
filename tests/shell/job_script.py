"""Job scripts that load the library, for tests that run them as bash."""

import json
import subprocess

from hpcrun import __version__, paths
from tests.shell.process import bash
from tests.waiting import DEADLINE

OPTIONS = "--no-packages"


class Job:
    """A script with the library in it, and its run directory."""

    scheduler = "local"

    def __init__(self, folder):
        self.folder, self.run = folder, folder / "runs/job-20261122-170311-a4a2f852"

    def script(self, *setup, words="@rank true", after="", options=OPTIONS, version=__version__, of_job="", task=""):
        """Write a script; return its path."""
        file = self.folder / "job.sh"
        file.write_text("\n".join([
            f"export HPCRUN_RUN_DIR={self.run}{task} HPCRUN_LAUNCHER=none HPCRUN_SITE_NAME=here",
            f"hpcrun_library={paths.shell_library()}",
            "[[ -O $HPCRUN_RUN_DIR && -O $HPCRUN_RUN_DIR/shell/job.bash ]] && hpcrun_library=$HPCRUN_RUN_DIR/shell",
            f'builtin source "$hpcrun_library/job.bash" {version} {self.scheduler} {of_job} || exit 1',
            *setup,
            f"hpcrun_launch --launcher none {options} -- {words}",
            after,
        ]))  # fmt: skip
        return file

    def started(self, file, **environ):
        return bash(file, environ=environ, without=("HPCRUN_", "hpcrun_", "SLURM_", "SBATCH_"), stderr=subprocess.PIPE)

    def __call__(self, *setup, environ=None, **how):
        """Run a script to its end; return its code, its output and its errors."""
        with self.started(self.script(*setup, **how), **(environ or {})) as process:
            out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    def record(self):
        return json.loads((self.run / "exit.json").read_text())
