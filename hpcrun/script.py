"""Rendering: a job in, one complete bash script out. A pure function; nothing is asked of any cluster."""

from __future__ import annotations

import re
import shlex
import traceback
from contextlib import suppress
from dataclasses import replace
from math import isinf
from typing import TYPE_CHECKING, Any

import jinja2

from hpcrun import launchers, paths
from hpcrun.errors import HpcrunError
from hpcrun.resources import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from hpcrun.spec import JobSpec

_HINT = "a template may override the blocks of templates/base.sh.j2; see docs/templates.md"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def quote(value: object) -> str:
    """Return a value as one literal bash word."""
    return shlex.quote(str(value))


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
    """Return an sbatch option as it stands in an ``#SBATCH`` line, which knows bash's quotes."""
    name, equals, value = option.partition("=")
    return f"{name}{equals}{quote(value)}" if equals else name


def words(argv: Iterable[str]) -> str:
    """Return a command line of literal bash words."""
    return shlex.join(argv)


def variables(value: str) -> list[str]:
    """Return the names of the variables that a value refers to."""
    return _VARIABLE.findall(value)


class _Layers(jinja2.BaseLoader):
    """Templates of all layers; one that extends its own name gets the next lower layer's."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = folders

    def get_source(
        self,
        environment: jinja2.Environment,  # noqa: ARG002 - jinja2's signature
        template: str,
    ) -> tuple[str, str | None, Callable[[], bool] | None]:
        level, _, name = template.rpartition(":")
        for number, folder in enumerate(self.folders[int(level or 0) :], int(level or 0)):
            file = folder / name
            if file.is_file():
                # the level is part of the name, so that join_path knows where `extends` has to go on from
                if template != f"{number}:{name}":
                    return f'{{% extends "{number}:{name}" %}}', None, None
                return file.read_text(), str(file), None
        raise jinja2.TemplateNotFound(name)


class _Compiled(jinja2.FileSystemBytecodeCache):
    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        with suppress(OSError):  # a full disk or a folder of somebody else's costs time, and no more
            super().dump_bytecode(bucket)


class _Environment(jinja2.Environment):
    def join_path(self, template: str, parent: str) -> str:
        level, _, name = parent.rpartition(":")
        if ":" in template:
            return template
        return f"{int(level) + 1}:{template}" if level and name == template else template


def _environment(folders: tuple[Path, ...]) -> jinja2.Environment:
    compiled = paths.cache("templates")
    environment = _Environment(
        loader=_Layers(folders),
        bytecode_cache=_Compiled(str(compiled)) if compiled.is_dir() else None,
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
        "words": words,
        "variables": variables,
        "data_variable": launchers.data_variable,
    }
    return environment


def sbatch_options(spec: JobSpec) -> list[str]:
    """Return the ``#SBATCH`` options, each as ``--name=value``: what somebody set, and the site's own."""
    apart = {"job_name", "sbatch", "gpus_per_node", "exclusive"}
    asked = {name: value for name, value in spec.resources.said().items() if name not in apart}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    options.insert(0, f"--job-name={spec.name}")
    gpus, gpu = spec.resources.gpus, spec.site.gpu
    if gpus and gpu.request != "none":
        kind = spec.resources.gpu_type or spec.site.partition(spec.resources.partition).gpu_type or gpu.type
        typed = f"{kind}:{gpus}" if kind else str(gpus)
        options.append(f"--gres=gpu:{typed}" if gpu.request == "gres" else f"--gpus-per-node={typed}")
    options += ["--exclusive"] if spec.resources.exclusive else []
    return [*options, f"--chdir={spec.directory}", *spec.site.sbatch, *spec.resources.sbatch]


def _whole(limit: float) -> int | None:
    return None if isinf(limit) else int(limit)


def render(spec: JobSpec) -> str:
    """Render the job script.

    Args:
        spec: The job.

    Returns:
        A bash script that is complete: given to ``sbatch`` (or bash, for the local scheduler) it does the job.

    Raises:
        HpcrunError: A template of the site, lab, user or project is wrong; names its file and line.
    """
    launcher = launchers.LAUNCHERS[spec.launcher]
    per_node = spec.resources.ntasks_per_node or 1
    context: dict[str, Any] = {
        "spec": spec,
        "site": spec.site,
        "run_dir": spec.run_dir,
        "tensorflow_level": {"DEBUG": 0, "INFO": 0, "WARNING": 1, "ERROR": 2}[spec.log_level],
        "sbatch_options": sbatch_options(spec),
        "launcher": launcher if spec.resources.ranks > 1 else replace(launcher, wired=""),
        "launch": launchers.command(spec),
        "job_variables": launchers.job_variables(spec),
        "gpus_per_rank": max(spec.resources.gpus // per_node, 1) if spec.resources.gpus else 0,
        "time_limit": _whole(seconds(spec.resources.time)) if spec.resources.time else None,
    }
    try:
        return _environment(spec.template_folders).get_template(f"{spec.scheduler}.sh.j2").render(context)
    except jinja2.TemplateSyntaxError as error:
        raise HpcrunError(f"{error.filename or error.name}:{error.lineno}: {error.message}", hint=_HINT) from None
    except jinja2.TemplateError as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        raise HpcrunError(f"{where}{error.message}", hint=_HINT) from None
