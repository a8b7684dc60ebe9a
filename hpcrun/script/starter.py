"""The command that starts the ranks of a node, if hpcrun's launcher starts one process per node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.node_launch import STARTERS, count_own_words, launcher_spec
from hpcrun.script.quoting import quote_word, quote_words

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec

_LINE_CONTINUATION = " \\\n  "
_RENDEZVOUS = '"$hpcrun_master:$hpcrun_port"'  # hpcrun_rendezvous sets both variables


def program(spec: JobSpec) -> str:
    """Return the words of the program, as bash.

    Args:
        spec: The job, with the resources of its ranks.
    """
    start, own = starter(spec)
    if spec.tasks:
        remaining_words = f'"${{hpcrun_program[@]:{own}}}"' if own else '"${hpcrun_program[@]}"'
    else:
        remaining_words = quote_words(spec.argv[own:], spec.staged)
    return f"{start}{_LINE_CONTINUATION}{remaining_words}" if start else remaining_words


def starter(spec: JobSpec) -> tuple[str, int]:
    """Return the bash words of the program that starts the ranks, and the number of words of the job that they replace.

    Args:
        spec: The job, with the resources of its ranks.

    Returns:
        The words of the starter, and the number of words before the script that they replace; empty and 0 without a
        starter.
    """
    if spec.launch not in STARTERS:
        return "", 0
    argv = spec.tasks[0].argv if spec.tasks else spec.argv
    nodes = launcher_spec(spec).resources.ranks
    ranks = spec.resources.ranks // nodes
    multi_gpu_option = "--multi_gpu " if nodes * ranks > 1 else ""  # Accelerate then uses torchrun, also on CPUs
    options = {
        "torchrun": [
            f"--nnodes={nodes} --nproc-per-node={ranks} --max-restarts=0",
            f"--rdzv-backend=c10d --rdzv-endpoint={_RENDEZVOUS}",
        ],
        "accelerate": [
            f"{multi_gpu_option}--num_machines={nodes} --num_processes={nodes * ranks}",
            "--machine_rank=0 --max_restarts=0 --rdzv_backend=c10d",
            '--main_process_ip="$hpcrun_master" --main_process_port="$hpcrun_port"',
        ],
    }[spec.launch]
    command = f"{quote_word(argv[0])} -m {STARTERS[spec.launch]}"
    return f"{command} {_LINE_CONTINUATION.join(options)}", count_own_words(spec.launch, argv)
