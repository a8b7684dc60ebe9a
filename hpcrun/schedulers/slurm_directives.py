"""The sbatch options that a job script has in ``#SBATCH`` lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.resources import parse_time

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def sbatch_options(spec: JobSpec) -> list[str]:
    """Return the options for ``#SBATCH`` lines, each as ``--name=value``: resources first, then the site's options."""
    special_names = {"job_name", "sbatch", "gpus_per_node", "exclusive"} | (set() if spec.has_gpus else {"mem_per_gpu"})
    plain_values = {name: value for name, value in spec.resources.explicit().items() if name not in special_names}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in plain_values.items()]
    options.insert(0, f"--job-name={spec.name}")
    gpus, gpu_keys = spec.resources.gpus, spec.site.gpu
    if gpus and gpu_keys.request != "none":
        gpu_type = spec.resources.gpu_type or gpu_keys.type
        option, separator, gpu_count = {
            "gres": ("--gres", "=gpu:", gpus),
            "gpus": ("--gpus", "=", gpus * (spec.resources.nodes or 1)),
            "gpus-per-task": ("--gpus-per-task", "=", spec.gpus_per_rank),
        }.get(gpu_keys.request or "", ("--gpus-per-node", "=", gpus))
        options.append(f"{option}{separator}{gpu_type}:{gpu_count}" if gpu_type else f"{option}{separator}{gpu_count}")
    options += ["--exclusive"] if spec.resources.exclusive else []
    if spec.tasks:
        max_parallel = f"%{spec.max_parallel}" if spec.max_parallel else ""
        options.append(f"--array=0-{len(spec.tasks) - 1}{max_parallel}")
    if spec.max_requeue:
        options += [
            f"--signal=B:USR2@{_seconds_before_limit(spec)}",
            "--requeue" if spec.site.restart.requeue else "--no-requeue",
        ]
    options = [option for option in options if option.partition("=")[0] not in spec.site.sbatch_omit]
    options, raw_options = _merge_gres(options, [*spec.site.sbatch, *spec.resources.sbatch])
    return [*options, f"--chdir={spec.directory}", *raw_options]


def _merge_gres(options: list[str], raw_options: list[str]) -> tuple[list[str], list[str]]:
    """Merge a ``--gres`` such as ``nvme:100`` into the ``--gres`` for GPUs: sbatch uses only the last ``--gres``."""
    gpu_options = [option for option in options if option.startswith("--gres=")]
    other_gres = [option.removeprefix("--gres=") for option in raw_options if option.startswith("--gres=")][-1:]
    if (
        not gpu_options
        or not other_gres
        or {one.partition(":")[0] for one in other_gres[0].split(",")} & {"gpu", "none"}
    ):
        return options, raw_options
    return (
        [f"{option},{other_gres[0]}" if option in gpu_options else option for option in options],
        [option for option in raw_options if not option.startswith("--gres=")],
    )


def _seconds_before_limit(spec: JobSpec) -> int:
    """Return the time in seconds before the time limit at which a job gets a signal: at most a quarter of the limit."""
    limit = parse_time(spec.resources.time) if spec.resources.time else float("inf")
    return max(1, int(min(spec.site.restart.signal_seconds, limit / 4)))
