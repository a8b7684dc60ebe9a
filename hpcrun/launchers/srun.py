"""srun: Slurm starts the ranks, which find each other by PMI or PMIx (https://slurm.schedmd.com/srun.html)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.launchers.base import Launcher
from hpcrun.paths import shell_library

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def command(spec: JobSpec, _hostfile: str) -> list[str]:
    """Return the words before the program: srun and its options."""
    resources = spec.resources
    words = ["srun", f"--ntasks={resources.ranks}"]
    words += [f"--nodes={resources.nodes}"] if resources.nodes else []
    words += [f"--ntasks-per-node={resources.ntasks_per_node}"] if resources.ntasks_per_node else []
    # since Slurm 22.05 steps no longer inherit the job's --cpus-per-task (srun(1))
    words += [f"--cpus-per-task={resources.cpus_per_task}"] if resources.cpus_per_task else []
    words += [f"--mpi={spec.site.mpi.type}"] if spec.site.mpi.type else []
    ranks, masks = resources.ntasks_per_node or 0, spec.site.gpu.cpu_masks
    if resources.gpus and resources.gpus == ranks <= len(masks):
        words.append(f"--cpu-bind=mask_cpu:{','.join(masks[:ranks])}")
    if spec.gpus_visible == "node" and spec.has_gpus and spec.site.gpu.request == "gpus-per-task":
        words.append("--gpu-bind=none")  # --gpus-per-task implies a binding to the task's GPUs (srun(1))
    return [*words, "--kill-on-bad-exit=1"]


LAUNCHER = Launcher(
    name="srun",
    command=command,
    rank=("SLURM_PROCID",),
    local_rank=("SLURM_LOCALID",),
    local_ranks=("SLURM_STEP_TASKS_PER_NODE",),
    stop_signal="USR2",
    uses_slurm=True,
    bash_file=shell_library() / "srun.bash",
    pmi=("PMI_RANK", "PMI_FD", "PMIX_RANK"),
)
