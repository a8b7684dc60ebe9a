"""Options in a job script for the functions of the bash library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun import containers, frameworks, launchers
from hpcrun.cuda import xla_flags
from hpcrun.paths import shell_library
from hpcrun.scheduler import find_scheduler
from hpcrun.script.quoting import quote

if TYPE_CHECKING:
    from pathlib import Path

    from hpcrun.spec import JobSpec


def cuda_options(spec: JobSpec) -> list[str] | None:
    """Return the options of `hpcrun cuda` in a job script, from site keys; None if the job needs no CUDA setup."""
    keys = spec.site.cuda
    if not uses_nvidia_gpus(spec) or spec.container:  # a container image has its own CUDA
        return None
    options = [f"--data-dir={keys.data_dir}"] if keys.data_dir else []
    options += [f"--libdevice={file}" for file in keys.libdevice] + [f"--ptxas={file}" for file in keys.ptxas]
    if keys.search:
        return options
    return [*options, "--no-search"] if options else None


def uses_nvidia_gpus(spec: JobSpec) -> bool:
    """Return whether the job's ranks get NVIDIA GPUs."""
    return spec.has_gpus and spec.site.gpu.vendor in {None, "nvidia"}


def options_as_words(**options: object) -> list[str]:
    """Return options as command-line arguments: True as the name alone; None, False and an empty text are omitted."""
    return [
        word
        for name, value in options.items()
        if value not in {None, False, ""}
        for word in ([f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", str(value)])
    ]


def list_library(spec: JobSpec) -> list[Path]:
    """Return the library files that a job loads: bash and Python files of hpcrun and of plugins."""
    plugin_files = (find_scheduler(spec.scheduler).bash_file, launchers.find_launcher(spec).bash_file)
    return sorted({*shell_library().glob("*.bash"), *shell_library().glob("*.py"), *filter(None, plugin_files)})


def _library_name(file: Path) -> str:
    """Return the path of a bash file for a job script; for hpcrun's own files, only the file name."""
    return file.stem if file.parent == shell_library() else str(file)


def job_options(spec: JobSpec) -> list[str]:
    """Return the arguments of job.bash: the file with the scheduler's functions, and the options."""
    site, scheduler = spec.site, find_scheduler(spec.scheduler)
    return [
        _library_name(scheduler.bash_file),
        *options_as_words(
            python=spec.python,
            python_key=site.python_key if site.python_key != "python" else None,
            share_runs=site.share_runs == "read",
            sweep=bool(spec.tasks),
            **scheduler.bash_options(spec),
        ),
    ]


def launch_options(spec: JobSpec) -> list[str]:
    """Return the options of hpcrun_launch."""
    launcher, gpu, ranks = launchers.find_launcher(spec), spec.site.gpu, spec.resources.ranks
    # a single process needs no options: its rank numbers are the defaults
    starts_ranks = not launcher.starts_one_process
    gpus = spec.visible_gpus if not spec.no_gpu else 0
    runtime = containers.RUNTIMES[spec.container.runtime] if spec.container else None
    return options_as_words(
        launcher=launcher.bash_file and _library_name(launcher.bash_file),
        ignores_failures=launcher.ignores_failures and ranks > 1,
        hides_signals=launcher.hides_signals,
        ranks=str(ranks),
        stop_signal=launcher.stop_signal,
        rank=" ".join(launcher.rank) if starts_ranks else None,
        local_rank=" ".join(launcher.local_rank) if starts_ranks else None,
        local_ranks=" ".join(launcher.local_ranks) if starts_ranks else None,
        wired=" ".join(launcher.pmi) if ranks > 1 else None,
        cpu_bind=launchers.choose_cpu_bind(spec),
        visible=gpu.visibility_variable if gpus or gpu.visibility_variable != "CUDA_VISIBLE_DEVICES" else None,
        gpus=",".join(map(str, range(spec.resources.gpus))) if gpus else None,
        gpus_per_rank=gpus or None,
        gpu_order=",".join(map(str, gpu.order)) if gpus else None,
        output_on_all_ranks=spec.output_on_all_ranks,
        in_container=spec.container.python if spec.container and runtime and runtime.command else None,
        no_packages=bool(runtime and not runtime.command),
        trains_separate_models=spec.trains_separate_models,
        framework=(framework := frameworks.launch_option(spec)),
        cyclic=framework == "tensorflow" and launchers.distributes_cyclically(spec),
        strict=spec.strict and ranks > 1,
    )


def hostfile_options(spec: JobSpec) -> list[str]:
    """Return the options of `hpcrun hostfile`."""
    resources = spec.resources
    task_options = {"ntasks": resources.ntasks, "ntasks_per_node": resources.ntasks_per_node}
    return options_as_words(hostfile=spec.hostfile, nodes=resources.nodes, **task_options)


def cuda_xla_flags(spec: JobSpec) -> str:
    """Return the value of XLA_FLAGS, with the flag that names the job's CUDA folder, as a bash word."""
    folder = spec.run_dir / f"{spec.run_dir.name}.TASK" if spec.tasks else spec.run_dir
    flag = xla_flags.format_data_dir(folder / "cuda")
    if flag == f"{xla_flags.DATA_DIR}={folder}/cuda":
        return f'"${{XLA_FLAGS:+$XLA_FLAGS }}{xla_flags.DATA_DIR}=$HPCRUN_RUN_DIR/cuda"'
    prefix, task_word, suffix = flag.rpartition(".TASK") if spec.tasks else (flag, "", "")
    return '"${XLA_FLAGS:+$XLA_FLAGS }"' + quote(prefix) + ('."$HPCRUN_TASK"' + quote(suffix) if task_word else "")
