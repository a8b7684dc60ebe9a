"""Rendering of the job script from the specification of a job, without queries to a cluster."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jinja2

from hpcrun import containers, launchers, node_launch, paths, staging
from hpcrun.errors import HpcrunError, closest_match
from hpcrun.launchers.rank_variables import job_variables
from hpcrun.scheduler import find_scheduler
from hpcrun.script import bash_options, quoting, starter, templates

if TYPE_CHECKING:
    from hpcrun.spec import JobSpec


def render(spec: JobSpec) -> str:
    """Render the job script.

    Args:
        spec: The specification of the job.

    Returns:
        A complete bash script for ``sbatch``, or for bash with the local scheduler.

    Raises:
        HpcrunError: A template is wrong; the message contains the file and line.
    """
    spec = replace(spec, secrets=("***",) * len(spec.secrets))
    program, ranks, spec = starter.program(spec), spec.resources.ranks, node_launch.launcher_spec(spec)
    launch = quoting.launch_line(launchers.build_launch_command(spec))
    has_starter = spec.launch in node_launch.STARTERS
    context: dict[str, Any] = {
        "spec": spec,
        "site": spec.site,
        "run_dir": spec.run_dir,
        "library": paths.shell_library(),
        "tensorflow_level": {"DEBUG": 0, "INFO": 0, "WARNING": 1, "ERROR": 2}[spec.log_level],
        "scheduler_options": find_scheduler(spec.scheduler).directives(spec),
        "job_options": bash_options.job_options(spec),
        "job_variables": job_variables(spec),
        "cuda_options": bash_options.cuda_options(spec),
        "cuda_flags": bash_options.cuda_xla_flags(spec),
        "on_nvidia": bash_options.uses_nvidia_gpus(spec),
        "hostfile_options": bash_options.hostfile_options(spec),
        "launcher": launchers.find_launcher(spec),
        "launch_options": bash_options.launch_options(spec),
        "launch": launch,
        "ranks": ranks if has_starter else spec.resources.ranks,
        "started_by": spec.launch if has_starter else spec.launcher if launch else "",
        "program": program,
        "has_starter": has_starter,
        "time_limit": spec.time_limit_seconds,
        "local_scratch": staging.local_folder(spec.site),
        **_container_context(spec),
    }
    try:
        environment = templates.create_environment(spec.template_folders)
        script = environment.get_template(f"{spec.scheduler}.sh.j2").render(context)
        script.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        message = f"the job script would contain {error.object[error.start]!r}, which is half a character"
        raise HpcrunError(message, hint="write the secret as one word") from None
    except jinja2.TemplateSyntaxError as error:
        location = f"{error.filename or error.name}:{error.lineno}"
        raise HpcrunError(f"{location}: {error.message}", hint=templates.HINT) from None
    except Exception as error:  # expressions and filters of a template may raise any exception
        template_frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".j2")]
        if not template_frames and not isinstance(error, jinja2.TemplateError):
            raise
        location = f"{template_frames[-1].filename}:{template_frames[-1].lineno}: " if template_frames else ""
        raise HpcrunError(f"{location}{error}", hint=_closest_variable(str(error), context) or templates.HINT) from None
    return script


def _closest_variable(message: str, context: dict[str, Any]) -> str:
    """Return the hint with the name that an undefined one in a template probably means; empty if there is none."""
    if match := re.fullmatch(r"'(\w+)' is undefined", message):
        known_names = [*context]
    elif match := re.fullmatch(r"'[\w.]+\.(?P<type>\w+) object' has no attribute '(\w+)'", message):
        spec = context["spec"]
        objects = {type(value).__name__: value for value in (spec, spec.resources, spec.site, context["launcher"])}
        known_names = [name for name in dir(objects.get(match["type"])) if not name.startswith("_")]
    else:
        return ""
    closest_name = closest_match(match.groups()[-1], known_names)
    return f"did you mean {closest_name}? docs/templates.md lists the variables" if closest_name else ""


def _container_context(spec: JobSpec) -> dict[str, Any]:
    """Return the template variables for the container; ``runtime`` is None without a container."""
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
        "enter_options": bash_options.options_as_words(
            image_file=runtime.files and "://" not in str(spec.container.image),
            bind_hpcrun=spec.container.hpcrun == "bind",
            bind=runtime.bind if runtime.command else None,
            prefix=runtime.prefix if runtime.command else None,
            python=spec.container.python if runtime.command and argv[0] == spec.container.python else None,
            runtime=spec.container.runtime if runtime.command else None,
        ),
    }
