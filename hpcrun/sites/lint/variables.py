"""Lint checks of the environment variables that a site file sets for jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hpcrun.request import USER_VARIABLES
from hpcrun.secrets import SECRET_PATTERN, is_secret, mask_command
from hpcrun.sites.lint.levels import finding_at, iterate_levels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.finding import Finding
    from hpcrun.sites.site_model import Site

_PATH_VARIABLES = re.compile(r"(LD_LIBRARY_|LIBRARY_|PYTHON|MAN|MODULE|C|CPLUS_INCLUDE_|PKG_CONFIG_)?PATH")
_UNEXPANDED = re.compile(r"\$(\(|[A-Za-z_])|`")
_SECRET_LINE = re.compile(r"(?:^|[\s;_])(?:TOKEN|SECRET|PASSWORD|KEY)=['\"]?[^\s$'\"/~`]{8,}", re.IGNORECASE)


def overwritten_path(site: Site) -> Iterator[Finding]:
    """Warn of search paths such as LD_LIBRARY_PATH that overwrite the value from modules."""
    for key, name, value in _environment_variables(site):
        if _PATH_VARIABLES.fullmatch(name):
            yield finding_at(
                key,
                f"environment.{name} = {value!r} overwrites the value from modules and the system",
                f"use prepend_path.{name}, a list of folders to prepend",
            )


def variable_with_key(site: Site) -> Iterator[Finding]:
    """Warn of XLA_FLAGS: unlike the key ``cuda.xla_flags``, the variable discards flags of users and modules."""
    for key, name, _ in _environment_variables(site):
        if name == "XLA_FLAGS":
            problem = "environment.XLA_FLAGS overwrites the flags that the user or a module has set"
            yield finding_at(key, problem, "use cuda.xla_flags, a list of flags to prepend")


def reserved_variable(site: Site) -> Iterator[Finding]:
    """Warn of environment variables that the scheduler or hpcrun sets for each job."""
    for key, name, _ in _environment_variables(site):
        if name in {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}:
            yield finding_at(
                key, f"environment.{name} overrides the GPUs that Slurm assigned to the ranks", "remove it"
            )
        elif name.startswith(("SBATCH_", "SALLOC_")):
            fix = "put the option into sbatch, as --name=value"
            yield finding_at(key, f"environment.{name} has no effect, because it is set after the job has started", fix)
        elif name.startswith("HPCRUN_") and name not in USER_VARIABLES:
            yield finding_at(key, f"environment.{name} is a variable of hpcrun", "remove it")


def unexpanded_dollar(site: Site) -> Iterator[Finding]:
    """Warn of expressions that bash would expand, but hpcrun does not expand."""
    values: list[tuple[tuple[str, ...], str]] = [(key, value) for key, _, value in _environment_variables(site)]
    values += [(("data", name), value) for name, value in site.data.items()]
    values += [(("prepend_path", name), folder) for name, folders in site.prepend_path.items() for folder in folders]
    values += [(("run_root",), site.run_root), *((("modules", "use"), folder) for folder in site.modules.use)]
    paths_by_key = {"venv": site.venv, "uv": site.uv, "conda.env": site.conda.env, "conda.root": site.conda.root}
    paths_by_key |= {
        "spack.root": site.spack.root,
        "spack.env": site.spack.env,
        "container.image": site.container.image,
    }
    values += [(tuple(key.split(".")), value) for key, value in paths_by_key.items() if value]
    for key, level in iterate_levels(site):
        values += [((*key, "cuda", "data_dir"), level.cuda.data_dir)] if level.cuda.data_dir else []
        values += [((*key, "cuda", "libdevice"), file) for file in level.cuda.libdevice or ()]
        values += [((*key, "cuda", "ptxas"), file) for file in level.cuda.ptxas or ()]
    values += [(("container", "binds"), bind) for bind in site.container.binds]
    for key, value in values:
        if expression := _UNEXPANDED.search(value):
            problem = f"{'.'.join(key)} has {expression[0]!r} in {value!r}, which jobs take literally"
            yield finding_at(key, problem, "write ${NAME} for a variable; put other bash expressions into setup")


def secret_value(site: Site) -> Iterator[Finding]:
    """Warn of values that look like a password or token; the message does not contain these values."""
    fix = "remove it, and replace it if others can read this file; each user can set it with hpcrun submit -x"
    for key, name, value in _environment_variables(site):
        if is_secret(name, value) or SECRET_PATTERN.search(value):
            yield finding_at(
                key, f"environment.{name} looks like a secret, which all readers of this file can see", fix
            )
    for key, level in iterate_levels(site):
        lines_by_key: dict[tuple[str, ...], tuple[str, ...] | None] = {
            ("setup",): level.setup,
            ("teardown",): level.teardown,
            ("sbatch",): level.sbatch,
        }
        lines_by_key |= {
            ("launcher_args",): level.launcher_args,
            ("container", "image"): (level.container.image or "",),
        }
        for path, texts in lines_by_key.items():
            for number, text in enumerate(texts or (), 1):
                if _SECRET_LINE.search(text) or mask_command(text) != text:
                    location = f"line {number} of {path[0]}" if path[0] in {"setup", "teardown"} else ".".join(path)
                    problem = f"{location} seems to contain a secret, which all readers of this file can see"
                    yield finding_at((*key, *path), problem, fix)


def _environment_variables(site: Site) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for key, level in iterate_levels(site):
        for table, variables in (("environment",), level.environment), (("mpi", "environment"), level.mpi.environment):
            for name, value in (variables or {}).items():
                yield (*key, *table, name), name, value
