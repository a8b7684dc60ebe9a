"""The ``#SBATCH`` options of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def sbatch_options(spec: JobSpec) -> list[str]:
    """Return the ``#SBATCH`` options, each as ``--name=value``: those of the job's resources, then the site's."""
    apart = {"job_name", "sbatch", "gpus_per_node", "exclusive"} | (set() if spec.has_gpus else {"mem_per_gpu"})
    explicit = {name: value for name, value in spec.resources.explicit().items() if name not in apart}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in explicit.items()]
    options.insert(0, f"--job-name={spec.name}")
    gpus, gpu = spec.resources.gpus, spec.site.gpu
    if gpus and gpu.request != "none":
        kind = spec.resources.gpu_type or gpu.type
        option, equals, number = {
            "gres": ("--gres", "=gpu:", gpus),
            "gpus": ("--gpus", "=", gpus * (spec.resources.nodes or 1)),
            "gpus-per-task": ("--gpus-per-task", "=", spec.gpus_per_rank),
        }.get(gpu.request or "", ("--gpus-per-node", "=", gpus))
        options.append(f"{option}{equals}{kind}:{number}" if kind else f"{option}{equals}{number}")
    options += ["--exclusive"] if spec.resources.exclusive else []
    if spec.tasks:
        most = f"%{spec.max_parallel}" if spec.max_parallel else ""
        options.append(f"--array=0-{len(spec.tasks) - 1}{most}")
    if spec.max_requeue:
        options += [
            f"--signal=B:USR2@{_seconds_before_limit(spec)}",
            "--requeue" if spec.site.restart.requeue else "--no-requeue",
        ]
    options = [option for option in options if option.partition("=")[0] not in spec.site.sbatch_omit]
    options, raw = _merge_gres(options, [*spec.site.sbatch, *spec.resources.sbatch])
    return [*options, f"--chdir={spec.directory}", *raw]


def _merge_gres(options: list[str], raw: list[str]) -> tuple[list[str], list[str]]:
    """Add generic resources such as ``--gres=nvme:100`` to the GPUs, since sbatch uses only the last ``--gres``."""
    gpus = [option for option in options if option.startswith("--gres=")]
    others = [option.removeprefix("--gres=") for option in raw if option.startswith("--gres=")][-1:]
    if not gpus or not others or {one.partition(":")[0] for one in others[0].split(",")} & {"gpu", "none"}:
        return options, raw
    return (
        [f"{option},{others[0]}" if option in gpus else option for option in options],
        [option for option in raw if not option.startswith("--gres=")],
    )


def _seconds_before_limit(spec: JobSpec) -> int:
    """Return how many seconds before its time limit a job gets the signal: at most a quarter of the limit."""
    limit = parse_time(spec.resources.time) if spec.resources.time else float("inf")
    return max(1, int(min(spec.site.restart.signal_seconds, limit / 4)))
