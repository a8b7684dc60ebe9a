"""Probe of the environment of jobs: a run of the job script on this host with one process."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.doctor.login_host import temporarily_created
from hpcrun.doctor.node_probe import REPORT_FOLDER
from hpcrun.doctor.node_report import read_report
from hpcrun.errors import HpcrunError
from hpcrun.resources import Resources
from hpcrun.schedulers.command import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.doctor.context import CheckContext
    from hpcrun.doctor.node_report import NodeReport
    from hpcrun.spec import JobSpec

TIMEOUT_SECONDS = 180.0
"""Timeout of the job script; modules and Python packages load slowly from a busy file server."""


def probe_host(context: CheckContext) -> NodeReport:
    """Run `hpcrun.doctor.node_probe` on this host in the environment of the site's jobs, and return the report.

    Raises:
        HpcrunError: The script failed; the message contains its errors.
    """
    from hpcrun.script.render import render

    if not context.plan:
        reason, hint = (context.refusal.message, context.refusal.hint) if context.refusal else ("", None)
        raise HpcrunError(f"no job script to check: {reason}", hint=hint)
    planned_spec = context.plan.spec
    # with GPUs, the script sets up CUDA; a container has its own CUDA, and may not start on a host without GPUs
    gpus = None if planned_spec.container else planned_spec.resources.gpus_per_node
    with _temporary_run_directory(context.run_root) as run_dir:
        spec = replace(
            planned_spec,
            site=replace(planned_spec.site, sbatch=()) if planned_spec.container else planned_spec.site,
            launcher="none",
            resources=Resources(nodes=1, ntasks=1, ntasks_per_node=1, gpus_per_node=gpus),
            run_dir=run_dir,
            max_requeue=0,
            memory_retries=0,
        )
        (run_dir / "job.sh").write_text(render(spec))
        result = run(
            ["bash", str(run_dir / "job.sh")], timeout=TIMEOUT_SECONDS, folder=run_dir, conf=context.slurm.conf
        )
        reports = map(read_report, (run_dir / REPORT_FOLDER).glob("*.json"))
        if report := next(filter(None, reports), None):
            return report
        raise _script_error(spec, result.error_message if result.code is None else result.err)


@contextmanager
def _temporary_run_directory(root: Path | None) -> Iterator[Path]:
    """Create a temporary run directory in the site's run root, or in /tmp if that fails."""
    with ExitStack() as stack:
        folder = ""
        with suppress(OSError):
            if root:
                stack.enter_context(temporarily_created(root))
                folder = tempfile.mkdtemp(prefix=".doctor-", dir=root)
        folder = folder or tempfile.mkdtemp(prefix="hpcrun-doctor-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield Path(folder)


def _script_error(spec: JobSpec, error_output: str) -> HpcrunError:
    """Return the error about a job script that failed."""
    log = spec.run_dir / "logs/rank-0.log"
    lines = [line for line in (error_output + (log.read_text() if log.exists() else "")).splitlines() if line.strip()]
    output_end = "; ".join(lines[-3:]).replace(f"{spec.run_dir}/job.sh: ", "") or "no output"
    hint = "hpcrun submit --dry-run shows the script; the lines before the launch come from the site file"
    if "No module named" in output_end:
        hint = f"install hpcrun {spec.version} for {spec.python}, or set python in the site file"
        if spec.container:
            hint = f"the Python of the image {spec.container.image} lacks it (site key container.python)"
    return HpcrunError(f"the job's script fails here: {output_end}", hint=hint)
