"""The job's own script, run here with one process: what modules, exports and setup do is what they do to a job."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.doctor.login_host import temporarily_created
from hpcrun.doctor.node_probe import FOLDER
from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources
from hpcrun.schedulers.ask import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.doctor.context import CheckContext
    from hpcrun.spec import JobSpec

TIMEOUT_SECONDS = 180.0
"""For the script: modules and Python packages on a busy file server take their time."""


def probe_host(context: CheckContext) -> dict[str, Any]:
    """Return what `hpcrun.doctor.node_probe` tells of this host in the environment that the site's jobs get.

    Raises:
        HpcrunError: The script ended before; says how, and what it complained of.
    """
    from hpcrun.script import render

    if not context.plan:
        why, hint = (context.refusal.message, context.refusal.hint) if context.refusal else ("", None)
        raise HpcrunError(f"there is no job script to look at: {why}", hint=hint)
    planned = context.plan.spec
    # a job that asks for GPUs gets what the site says of CUDA; an image has its own, and may not start without them
    gpus = None if planned.container else planned.resources.gpus_per_node
    with _temporary_run_directory(context.run_root) as run_dir:
        spec = replace(
            planned,
            site=replace(planned.site, sbatch=()) if planned.container else planned.site,
            launcher="none",
            resources=Resources(nodes=1, ntasks=1, ntasks_per_node=1, gpus_per_node=gpus),
            run_dir=run_dir,
            max_requeue=0,
        )
        (run_dir / "job.sh").write_text(render(spec))
        answer = ask(
            ["bash", str(run_dir / "job.sh")], seconds=TIMEOUT_SECONDS, folder=run_dir, conf=context.slurm_conf
        )
        files = list((run_dir / FOLDER).glob("*.json"))
        if files:
            report: dict[str, Any] = json.loads(files[0].read_text())
            return report
        raise _script_error(spec, answer.complaint if answer.code is None else answer.err)


@contextmanager
def _temporary_run_directory(root: Path | None) -> Iterator[Path]:
    """Make a folder for a while where run directories go, or where that cannot be, in this host's /tmp."""
    with ExitStack() as stack:
        folder = ""
        with suppress(OSError):
            if root:
                stack.enter_context(temporarily_created(root))
                folder = tempfile.mkdtemp(prefix=".doctor-", dir=root)
        folder = folder or tempfile.mkdtemp(prefix="hpcrun-doctor-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Path(folder)


def _script_error(spec: JobSpec, complaint: str) -> HpcrunError:
    """Return what to say of a script that ended too early."""
    log = spec.run_dir / "logs/rank-0.log"
    lines = [line for line in (complaint + (log.read_text() if log.exists() else "")).splitlines() if line.strip()]
    said = "; ".join(lines[-3:]).replace(f"{spec.run_dir}/job.sh: ", "") or "it says nothing"
    hint = "hpcrun submit --dry-run shows the script; the lines before its launch are the site file's"
    if "No module named" in said:
        hint = f"install hpcrun {spec.version} for {spec.python}, or set python in the site file"
        if spec.container:
            hint = f"the Python of the image {spec.container.image} lacks it (site key container.python)"
    return HpcrunError(f"the job's script fails here: {said}", hint=hint)
