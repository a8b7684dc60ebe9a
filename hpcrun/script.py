"""Rendering: a job in, one complete bash script out. A pure function; nothing is asked of any cluster."""

from __future__ import annotations

import re
import shlex
import traceback
from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING, Any

import jinja2
import jinja2.nodes

from hpcrun import containers, launchers, paths, sandbox, secrets
from hpcrun.cuda import xla_flags
from hpcrun.errors import HpcrunError
from hpcrun.launchers.variables import data_variable, job_variables
from hpcrun.resources import parse_time
from hpcrun.sites import trust
from hpcrun.sites.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from hpcrun.spec import JobSpec

_HINT = "a template may override the blocks of templates/base.sh.j2; see docs/templates.md"
_ESCAPED = re.compile(r"['\\]|(?<=p)(?=ackjob)|(?<=h)(?=etjob)", re.IGNORECASE)
_GONE = dict.fromkeys(("record", "goes_on", "leaves"), "the library file record.bash")
_GONE |= dict.fromkeys(("ask", "traps", "orphans"), "the library file signals.bash")
_GONE |= dict.fromkeys(
    ("requeue", "nodes", "job_id", "becomes", "ranks_code"), "the library file slurm.bash or local.bash"
)
_GONE |= dict.fromkeys(
    ("provenance", "provenance_of_scheduler"), "the library file launch.bash, or your own block teardown,"
)
_GONE |= {"rank": "hpcrun_launch, by its options in the block launch,"}
"""Blocks that templates once had, and what has their place; see docs/templates.md."""
_WIDTH = 100
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote(value: object) -> str:
    """Return a value as one literal bash word.

    Raises:
        HpcrunError: It has a NUL, which ends every text that a program gets.
    """
    text = str(value)
    if "\0" in text:
        raise HpcrunError(f"{text!r} has a NUL character", hint="no variable, argument or file name can have one")
    return shlex.quote(text)


def expand(value: str, default: str = "") -> str:
    """Return a value as one bash word in which ``${NAME}`` and a leading ``~/`` expand, and all else is literal.

    Args:
        value: The text, such as ``${CONDA_PREFIX}/lib``.
        default: Bash's way to say what an unset variable means: ``-`` for nothing, ``?text`` for an error.
    """
    value = f"${{HOME}}/{value[2:]}" if value.startswith("~/") else value
    parts = _VARIABLE.split(value)  # literal, name, literal, name, ..., literal
    words = [f'"${{{part}{default}}}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)]
    return "".join(words) or "''"


def directive(option: str) -> str:
    """Return an sbatch option as it stands in an ``#SBATCH`` line.

    sbatch knows bash's quotes, but in all of them a backslash takes the next character literally; and the words that
    separate the parts of a heterogeneous job do so in the middle of values, too.

    Raises:
        HpcrunError: It would end the line.
    """
    name, equals, value = option.partition("=")
    if re.search(r"[\x00-\x1f\x7f]", value):
        hint = "submit from a folder with another name" if name == "--chdir" else "leave it out"
        raise HpcrunError(f"{name}={value!r}: no #SBATCH line can have a line break or the like", hint=hint)
    escaped = _ESCAPED.sub(r"\\\g<0>", value)
    return f"{name}{equals}'{escaped}'" if equals and (escaped, quote(value)) != (value, value) else option


def word(text: str) -> str:
    """Return an argument, or a variable's value, as one bash word, with the job's secrets in place of placeholders."""
    parts = secrets.PLACEHOLDER.split(text)  # literal, number, literal, number, ..., literal
    said = [f'"$hpcrun_secret_{part}"' if i % 2 else (quote(part) if part else "") for i, part in enumerate(parts)]
    return "".join(said) or "''"


def words(argv: Iterable[str]) -> str:
    """Return a command line of bash words, literal but for the job's secrets."""
    return " ".join(map(word, argv))


def wrapped(argv: Iterable[str]) -> str:
    """Return options as literal bash words, on as many lines as it takes; an option's value stays on its line."""
    lines: list[str] = []
    for argument in argv:
        value = quote(argument)
        fits = lines and (len(lines[-1]) + len(value) < _WIDTH or not argument.startswith("--"))
        if fits:
            lines[-1] += f" {value}"
        else:
            lines.append(value)
    return " \\\n  ".join(lines)


def _launch(argv: Sequence[str]) -> str:
    if "@rank" in argv:
        raise HpcrunError(
            "launcher_args: @rank is hpcrun's own word",
            hint="leave it out: hpcrun puts it between the launcher and the program",
        )
    return " ".join(_with_hostfile(word) for word in argv)


def _with_hostfile(text: str) -> str:
    """Return a launcher's word as bash, literal but for the hostfile's path."""
    parts = [quote(part) if part else "" for part in text.split(launchers.HOSTFILE)]
    return f'"{launchers.HOSTFILE}"'.join(parts) or "''"


def variables(value: str) -> list[str]:
    """Return the names of the variables that a value refers to."""
    return _VARIABLE.findall(value)


class _Layers(jinja2.BaseLoader):
    """Templates of all layers; one that extends its own name gets the next lower layer's."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders

    def get_source(
        self,
        environment: jinja2.Environment,
        template: str,
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        level, _, name = template.rpartition(":")
        if ".." in name.split("/") or name.startswith("/"):  # what lies elsewhere is no template
            raise jinja2.TemplateNotFound(name)
        for number, folder in enumerate(self.folders[int(level or 0) :], int(level or 0)):
            file = folder / name
            if file.is_file():
                # the level is part of the name, so that join_path knows where `extends` has to go on from
                if template != f"{number}:{name}":
                    return f'{{% extends "{number}:{name}" %}}', None, None
                text = _text(file)
                if folder != paths.shipped_folder("templates"):
                    _refuse_gone(environment, text, file)
                return text, str(file), None
        raise jinja2.TemplateNotFound(name)


def _refuse_gone(environment: jinja2.Environment, text: str, file: Path) -> None:
    """Refuse a template that overrides a block that no longer exists: nothing would render what it says."""
    try:
        parsed = environment.parse(text)
    except jinja2.TemplateSyntaxError:
        return  # whoever compiles it tells
    if not parsed.find(jinja2.nodes.Extends):
        return
    for block in parsed.find_all(jinja2.nodes.Block):
        if block.name in _GONE:
            what = f"{file}:{block.lineno}: job scripts have no block {block.name} any more"
            raise HpcrunError(what, hint=f"{_GONE[block.name]} does that now; see docs/templates.md")


def _text(file: Path) -> str:
    """Read a template, whose text is bash that runs as this user."""
    try:
        source = Source.read(file)
    except UnicodeDecodeError:
        raise HpcrunError(f"{file}: not a text file", hint=_HINT) from None
    trust.require_trusted_template(source)
    return source.text


class _Environment(sandbox.TemplateEnvironment):
    def join_path(self, template: str, parent: str) -> str:
        level, _, name = parent.rpartition(":")
        if ":" in template:
            return template
        return f"{int(level) + 1}:{template}" if level and name == template else template


def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    compiled = paths.user_cache_folder("templates")
    environment = _Environment(
        loader=_Layers(folders),
        bytecode_cache=sandbox.PrivateBytecodeCache(str(compiled)) if compiled.is_dir() else None,
        undefined=jinja2.StrictUndefined,
        comment_start_string="<#",  # {# is bash's, as in ${#array[@]}
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {
        "quote": quote,
        "expand": expand,
        "directive": directive,
        "word": word,
        "words": words,
        "wrapped": wrapped,
        "variables": variables,
        "data_variable": data_variable,
    }
    return environment


def check_template(text: str, name: str) -> None:
    """Refuse a template that cannot be read as one; nothing of it runs.

    Args:
        text: The template.
        name: Its name, for people.

    Raises:
        HpcrunError: Names the line.
    """
    try:
        _environment(()).parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise HpcrunError(f"{name}:{error.lineno}: {error.message}", hint=_HINT, exit_code=1) from None


def sbatch_options(spec: JobSpec) -> list[str]:
    """Return the ``#SBATCH`` options, each as ``--name=value``: what somebody set, and the site's own."""
    apart = {"job_name", "sbatch", "gpus_per_node", "exclusive"} | (set() if spec.has_gpus else {"mem_per_gpu"})
    asked = {name: value for name, value in spec.resources.explicit().items() if name not in apart}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    options.insert(0, f"--job-name={spec.name}")
    gpus, gpu = spec.resources.gpus, spec.site.gpu
    if gpus and gpu.request != "none":
        kind = spec.resources.gpu_type or gpu.type
        option, equals, number = {
            "gres": ("--gres", "=gpu:", gpus),
            "gpus": ("--gpus", "=", gpus * (spec.resources.nodes or 1)),
            "gpus-per-task": ("--gpus-per-task", "=", _gpus_per_rank(spec)),
        }.get(gpu.request or "", ("--gpus-per-node", "=", gpus))
        options.append(f"{option}{equals}{kind}:{number}" if kind else f"{option}{equals}{number}")
    options += ["--exclusive"] if spec.resources.exclusive else []
    if spec.tasks:
        most = f"%{spec.max_parallel}" if spec.max_parallel else ""
        options.append(f"--array=0-{len(spec.tasks) - 1}{most}")
    if spec.max_requeue:
        options += [f"--signal=B:USR2@{_early(spec)}", "--requeue" if spec.site.restart.requeue else "--no-requeue"]
    options = [option for option in options if option.partition("=")[0] not in spec.site.sbatch_omit]
    return [*options, f"--chdir={spec.directory}", *spec.site.sbatch, *spec.resources.sbatch]


def cuda_options(spec: JobSpec) -> list[str]:
    """Return what `hpcrun cuda --shell` gets in a job: the site's keys; none where it has nothing to do."""
    keys = spec.site.cuda
    if not _on_nvidia(spec) or spec.container:  # an image has its own CUDA
        return []
    said = [f"--data-dir={keys.data_dir}"] if keys.data_dir else []
    said += [f"--libdevice={file}" for file in keys.libdevice] + [f"--ptxas={file}" for file in keys.ptxas]
    if said or keys.search:
        return ["--shell", *said] + ([] if keys.search else ["--no-search"])
    return []


def _on_nvidia(spec: JobSpec) -> bool:
    return spec.has_gpus and spec.site.gpu.vendor in {None, "nvidia"}


def _early(spec: JobSpec) -> int:
    """Return how many seconds before its time limit a job is told to stop: of a short one, not the better part."""
    limit = parse_time(spec.resources.time) if spec.resources.time else float("inf")
    return max(1, int(min(spec.site.restart.signal_seconds, limit / 4)))


def _gpus_per_rank(spec: JobSpec) -> int:
    gpus = spec.resources.gpus
    return max(gpus // (spec.resources.ntasks_per_node or 1), 1) if gpus else 0


def _options(**given: object) -> list[str]:
    """Return options as words: those of True by their names alone, those of None, False and "" not at all."""
    return [
        word
        for name, value in given.items()
        if value not in {None, False, ""}
        for word in ([f"--{name.replace('_', '-')}"] if value is True else [f"--{name.replace('_', '-')}", str(value)])
    ]


def _job_options(spec: JobSpec) -> list[str]:
    """Return the scheduler and the options of job.bash."""
    site, slurm = spec.site, spec.scheduler == "slurm"
    return [
        spec.scheduler,
        *_options(
            python=spec.python,
            python_key=site.python_key if site.python_key != "python" else None,
            share_runs=site.share_runs == "read",
            sweep=bool(spec.tasks),
            own_slurm_conf=slurm and bool(site.slurm_conf),
            max_requeue=spec.max_requeue if slurm and spec.max_requeue else None,
            resubmit=slurm and bool(spec.max_requeue) and not site.restart.requeue,
            timeout=not slurm and bool(spec.resources.time) and _limit(spec) is not None,
        ),
    ]


def _launch_options(spec: JobSpec) -> list[str]:
    """Return the options of hpcrun_launch."""
    launcher, gpu, ranks = launchers.find_launcher(spec), spec.site.gpu, spec.resources.ranks
    counts = not launcher.rank[0].isdigit()  # else there is one rank, whose numbers are the defaults
    gpus = _gpus_per_rank(spec) if not spec.no_gpu else 0
    runtime = containers.RUNTIMES[spec.container.runtime] if spec.container else None
    return _options(
        launcher=spec.launcher,
        ranks=str(ranks),
        stop_signal=launcher.stop_signal,
        rank=" ".join(launcher.rank) if counts else None,
        local_rank=" ".join(launcher.local_rank) if counts else None,
        local_ranks=" ".join(launcher.local_ranks) if counts else None,
        wired=" ".join(launcher.pmi) if ranks > 1 else None,
        cpu_bind=launchers.choose_cpu_bind(spec),
        visible=gpu.visibility_variable if gpus or gpu.visibility_variable != "CUDA_VISIBLE_DEVICES" else None,
        gpus=",".join(map(str, range(spec.resources.gpus))) if gpus else None,
        gpus_per_rank=gpus or None,
        gpu_order=",".join(map(str, gpu.order)) if gpus else None,
        output_on_all_ranks=spec.output_on_all_ranks,
        in_container=spec.container.python if spec.container and runtime and runtime.command else None,
        no_packages=bool(runtime and not runtime.command),
        trains_alone=spec.trains_alone,
    )


def _hostfile_options(spec: JobSpec) -> list[str]:
    """Return the options of `hpcrun hostfile`."""
    asked = spec.resources
    return _options(
        hostfile=spec.hostfile, nodes=asked.nodes, ntasks=asked.ntasks, ntasks_per_node=asked.ntasks_per_node
    )


def _cuda_flags(spec: JobSpec) -> str:
    """Return XLA_FLAGS with the flag that names the job's own CUDA folder, as a bash word."""
    folder = spec.run_dir / f"{spec.run_dir.name}.TASK" if spec.tasks else spec.run_dir
    named = xla_flags.format_data_dir(folder / "cuda")
    if named == f"{xla_flags.DATA_DIR}={folder}/cuda":
        return f'"${{XLA_FLAGS:+$XLA_FLAGS }}{xla_flags.DATA_DIR}=$HPCRUN_RUN_DIR/cuda"'
    before, task, after = named.rpartition(".TASK") if spec.tasks else (named, "", "")
    return '"${XLA_FLAGS:+$XLA_FLAGS }"' + quote(before) + ('."$HPCRUN_TASK"' + quote(after) if task else "")


def _limit(spec: JobSpec) -> int | None:
    limit = parse_time(spec.resources.time) if spec.resources.time else None
    return None if limit is None or isinf(limit) else int(limit)


def _contained(spec: JobSpec) -> dict[str, Any]:
    if not spec.container:
        return {"runtime": None}
    argv = spec.tasks[0].argv if spec.tasks else spec.argv
    runtime, names = (
        containers.RUNTIMES[spec.container.runtime],
        containers.list_forwarded_variables(spec, spec.container),
    )
    return {
        "runtime": runtime,
        "container_options": containers.runtime_options(spec, spec.container),
        "container_binds": containers.list_binds(spec, spec.container),
        "container_names": [
            name for name in names if not (runtime.command and name.startswith(containers.VARIABLE_PREFIXES))
        ],
        "container_families": containers.VARIABLE_PREFIXES,
        "enter_options": _options(
            image_file=runtime.files and "://" not in str(spec.container.image),
            bind_hpcrun=spec.container.hpcrun == "bind",
            bind=runtime.bind if runtime.command else None,
            prefix=runtime.prefix if runtime.command else None,
            python=spec.container.python if runtime.command and argv[0] == spec.container.python else None,
            runtime=spec.container.runtime if runtime.command else None,
        ),
    }


def render(spec: JobSpec) -> str:
    """Render the job script.

    Args:
        spec: The job.

    Returns:
        A bash script that is complete: given to ``sbatch`` (or bash, for the local scheduler) it does the job.

    Raises:
        HpcrunError: A template of the site, lab, user or project is wrong; names its file and line.
    """
    spec = replace(spec, secrets=("***",) * len(spec.secrets))
    context: dict[str, Any] = {
        "spec": spec,
        "site": spec.site,
        "run_dir": spec.run_dir,
        "library": paths.shell_library(),
        "tensorflow_level": {"DEBUG": 0, "INFO": 0, "WARNING": 1, "ERROR": 2}[spec.log_level],
        "sbatch_options": sbatch_options(spec),
        "job_options": _job_options(spec),
        "job_variables": job_variables(spec),
        "cuda_options": cuda_options(spec),
        "cuda_flags": _cuda_flags(spec),
        "on_nvidia": _on_nvidia(spec),
        "hostfile_options": _hostfile_options(spec),
        "launcher": launchers.find_launcher(spec),
        "launch_options": _launch_options(spec),
        "launch": _launch(launchers.build_launch_command(spec)),
        "program": '"${hpcrun_program[@]}"' if spec.tasks else words(spec.argv),
        "time_limit": _limit(spec),
        **_contained(spec),
    }
    try:
        return _environment(spec.template_folders).get_template(f"{spec.scheduler}.sh.j2").render(context)
    except jinja2.TemplateSyntaxError as error:
        raise HpcrunError(f"{error.filename or error.name}:{error.lineno}: {error.message}", hint=_HINT) from None
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
        if not frames and not isinstance(error, jinja2.TemplateError):
            raise
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        raise HpcrunError(f"{where}{error}", hint=_HINT) from None
