"""Benchmark of pipeline stages: bubble, memory and step time, beside the theory, one process and PyTorch.

    python benchmarks/pipeline.py [bubble] [memory]

The bubble is the share of a step in which the ranks do not compute. It is measured with layers that sleep, because
stages that compute need a core each. The computing is what one process needs for the passes of the same layers in the
same run, since a sleep and its call take 0.6 ms more than asked for. PyTorch is measured if it is installed
(tools/backends.sh).
"""

from __future__ import annotations

import socket
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.training.launch import Launcher, launch_on_this_host  # noqa: E402
from hpcrun.train.pipeline.schedule import bubble, held_micro_batches  # noqa: E402

LAYERS, LAYER_SECONDS, MICRO_BATCHES = 8, 0.03, 8
MEMORY_WIDTH, MEMORY_LAYERS, MEMORY_BATCH = 2048, 32, 64  # updates need temporary arrays of one layer


def torch_launcher() -> Launcher | None:
    """Return a launcher of PyTorch's ranks; None without PyTorch."""
    environment = ROOT / ".venv-backends"
    if not list(environment.glob("lib/python*/site-packages/torch/distributed/pipelining")):
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    launcher = launch_on_this_host(environment)
    return Launcher(launcher.command_prefix, launcher.python, {**launcher.environment, "MASTER_PORT": port})


def steps(launch: Launcher, program: str, stages: int, **options: object) -> dict[str, Any]:
    """Run a program with a number of stages, and return its JSON."""
    argv = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    return launch(stages, program, "--stages", stages, "--micro-batches", MICRO_BATCHES, *argv)


def measure_bubbles(launch: Launcher) -> None:
    """Print the bubbles of equal stages."""
    print(f"bubble of equal stages, {MICRO_BATCHES} micro-batches; goal: at most 1.25 times the theory")
    programs = {"hpcrun": (launch, "pipeline_steps.py")}
    if torch := torch_launcher():
        programs["torch"] = (torch, "torch_pipeline.py")
    for stages in (2, 4):
        for schedule in ("1f1b", "gpipe"):
            for name, (launcher, program) in programs.items():
                options = {"layers": LAYERS, "seconds": LAYER_SECONDS, "schedule": schedule, "rounds": 4}
                found = steps(launcher, program, stages, **options)
                seconds, busy = statistics.median(found["seconds"]), MICRO_BATCHES * found["pass_seconds"]
                measured, theory = 1 - busy / stages / seconds, bubble(stages, MICRO_BATCHES)
                row = f"{measured:6.1%}, theory {theory:6.1%}, ratio {measured / theory:.2f}"
                print(
                    f"  {stages} stages, {schedule:5}  {name:6} step {1000 * seconds:6.1f} ms, bubble {row}; "
                    f"passes of one process {1000 * busy:.1f} ms",
                    flush=True,
                )


def measure_memory(launch: Launcher) -> None:
    """Print the peak memory of ranks, and the step time, beside those of one process.

    Both are above the memory after the training of a small model of the same layers, as `pipeline_steps.py` says.
    """
    print("peak memory of a rank, Adam; goal: at most 1.15 times the model's share, plus the activations held")
    options = {"work": "dense", "layers": MEMORY_LAYERS, "width": MEMORY_WIDTH, "batch": MEMORY_BATCH, "rounds": 5}
    whole = steps(launch, "pipeline_steps.py", 1, **options)
    one_peak, one_step = max(whole["peaks"][0]), statistics.median(whole["seconds"])
    print(
        f"  weights {whole['weight_bytes'] / 1e6:.0f} MB; with gradients and Adam's two variables per weight, 4 times"
    )
    print(f"  1 process  {phases(whole['peaks'][0])}, step {one_step:.3f} s")
    for stages in (2, 4):
        result = steps(launch, "pipeline_steps.py", stages, **options)
        for stage, peaks in enumerate(result["peaks"]):
            held = held_micro_batches("1f1b", stages, MICRO_BATCHES, stage)
            micro_batch = MEMORY_BATCH // MICRO_BATCHES * MEMORY_WIDTH * 4
            activations = held * micro_batch * MEMORY_LAYERS // stages
            ratios = [(max(peaks) - activations) / (total / stages) for total in (one_peak, 4 * whole["weight_bytes"])]
            print(
                f"  {stages} stages, stage {stage}  {phases(peaks)}: {ratios[0]:.2f} of the share of one process, "
                f"{ratios[1]:.2f} of that of 4 times the weights",
                flush=True,
            )
        print(f"  {stages} stages, step {statistics.median(result['seconds']):.3f} s")
    if torch := torch_launcher():
        del options["rounds"]
        seconds = statistics.median(steps(torch, "torch_pipeline.py", 2, **options)["seconds"])
        print(f"  torch, 2 stages, step {seconds:.3f} s")


def phases(peaks: list[int]) -> str:
    """Describe the peaks of the phases."""
    building, first, later = (f"{peak / 1e6:.0f}" for peak in peaks)
    return f"{max(peaks) / 1e6:6.0f} MB (built {building}, first step {first}, later steps {later})"


def main() -> None:
    """Measure what the arguments name, or all."""
    launch, measurements = launch_on_this_host(), {"bubble": measure_bubbles, "memory": measure_memory}
    for name in sys.argv[1:] or measurements:
        measurements[name](launch)


if __name__ == "__main__":
    main()
