"""Resubmission: an earlier run, or tasks of a sweep, as a new job with changed options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcrun import job_levels, secrets, submission, sweep
from hpcrun.errors import HpcrunError
from hpcrun.jobs import records
from hpcrun.jobs.job_record import JobRecord
from hpcrun.resources import MEMORY_OPTIONS
from hpcrun.sites import layer_files, loader
from hpcrun.workload import Workload, read_workload_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.request import Request
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec
    from hpcrun.submission import Plan

_NOT_COMPARED = {
    "run_dir", "template_folders", "hostfile", "tasks", "values", "snapshot", "site", "resources", "container",
}  # fmt: skip
"""Keys of ``job.json`` that always differ or are not repeated, or whose values are compared one by one."""


def plan_again(run: Run, request: Request, args: tuple[str, ...] | None, tasks: Sequence[int] = ()) -> Plan:
    """Plan a job that repeats a run. Write and submit nothing.

    Args:
        run: The run, or a sweep.
        request: The options that change.
        args: New arguments of the program; None to keep them.
        tasks: The tasks of the sweep to repeat; each keeps its values and gets a new number.

    Raises:
        HpcrunError: The run has no record, its program is gone, or the new job cannot run.
    """
    if not run.spec.is_repeatable:
        why = f": it {run.faults['job.json']}" if "job.json" in run.faults else ""
        raise HpcrunError(f"{run.directory} has no job.json that says what ran{why}", hint="submit it as you did then")
    record = layer_files.read_source(run.directory / "job.json")
    spec = records.parse_record_text(JobRecord, secrets.restore_secrets(record.text, (run.sweep or run).directory))
    copy = (run.sweep or run).directory / "code"  # a sweep has one copy
    copied = bool(spec.snapshot) and request.snapshot is not False
    if spec.snapshot and not copied:  # then the code as it is today, where it was copied from
        spec = spec.relocated(copy, Path(spec.snapshot))
    loaded_site = loader.load_selected_site(request.site) if request.site else spec.site.load()
    loaded_site = replace(
        loaded_site, sources=(*loaded_site.sources, replace(record, record=True))
    )  # its lines would run, too
    kept = [spec.tasks[number] for number in tasks]
    program, old = _program(spec, kept[0].argv if kept else spec.argv, checked=args is not None)
    options = request.job_options_with_defaults(spec)
    if "gpus_per_node" in request.resources:
        options["no_gpu"] = request.no_gpu
    if request.site:  # the current site file's defaults
        options |= {name: options[name] or None for name in ("max_requeue", "memory_retries")}
    complete_request = replace(
        request,
        resources=_resources(_recorded_resources(run, spec), request.resources, loaded_site.site),
        environment=(*spec.environment, *request.environment),
        container=_container(spec) if request.container is None else request.container,
        **options,
    )
    words = old if args is None else args
    swept = [(tuple(task.values), tuple(task.argv[len(program.program) :])) for task in kept]
    if args is not None:
        swept = [(values, sweep.build_arguments(args, values, program.option_names)) for values, _ in swept]
    where = {"directory": Path(spec.directory), "copied": copy if copied else None}
    plan = submission.plan(complete_request, loaded_site, program, words, tasks=swept, **where)
    return replace(plan, spec=replace(plan.spec, snapshot=Path(spec.snapshot))) if copied and spec.snapshot else plan


def describe_changes(run: Run, spec: JobSpec, tasks: Sequence[int] = ()) -> list[str]:
    """Return what differs from an earlier run, one line each: ``nodes: 2, was 1``. Of a sweep, compare the first task.

    Args:
        run: The earlier run, or sweep.
        spec: The new job.
        tasks: The tasks of the sweep that it repeats.
    """
    recorded = run.spec.relocated((run.sweep or run).directory, spec.run_dir)  # a snapshot of the code goes with it
    new = records.parse_record_text(JobRecord, json.dumps(spec.as_json(), default=str))
    before, now = _list_values(recorded), _list_values(new)
    if tasks:
        first = "argv of the first task"
        before[first], now[first] = recorded.tasks[tasks[0]].argv, new.tasks[0].argv
    keys = dict.fromkeys([*before, *now])
    # what a record does not have, the version that wrote it did not know
    changed = [key for key in keys if before.get(key) != now.get(key) and (key in before or now[key])]
    return [f"{key}: {_format(now.get(key), key)}, was {_format(before.get(key), key)}" for key in changed]


def _program(spec: JobRecord, argv: Sequence[str], *, checked: bool) -> tuple[Workload, tuple[str, ...]]:
    """Return the program of a run and its arguments, with its declared options if the arguments must be checked."""
    first, *rest = argv
    pythons = {spec.python, spec.container.python if spec.container else None}
    if first not in pythons or not rest or not rest[0].endswith(".py"):
        return Workload(name=spec.name, program=(first,)), tuple(rest)
    script = Path(rest[0])
    if not script.is_file():
        raise HpcrunError(f"its program {script} is not there any more", hint="put it back, or submit another")
    options = (
        read_workload_folder(script.parent).options if checked and (script.parent / "workload.toml").is_file() else None
    )
    return Workload(name=spec.name, program=(None, str(script)), options=options), tuple(rest[1:])


def _recorded_resources(run: Run, spec: JobRecord) -> dict[str, Any]:
    try:
        return spec.resources.to_resources().explicit()
    except ValueError as error:
        hint = "another version of hpcrun may have written it: submit the job as you did then"
        raise HpcrunError(f"{run.directory}/job.json: resources: {error}", hint=hint) from None


def _resources(old: Mapping[str, Any], requested: dict[str, Any], site: Site) -> dict[str, Any]:
    """Merge requested resources into those of the earlier job; derived numbers are derived again."""
    dropped = {"dependency"}  # on jobs that have ended long ago
    if "ntasks" in requested or "gpus_per_node" in requested:
        dropped.add("ntasks_per_node")
    if {"nodes", "ntasks_per_node", "gpus_per_node"} & set(requested):
        dropped.add("ntasks")
    dropped |= set(MEMORY_OPTIONS) if set(MEMORY_OPTIONS) & set(requested) else set()
    kept = {name: value for name, value in old.items() if name not in dropped}
    defaults = job_levels.resolve_site({**old, **requested}, site).defaults.sbatch
    options = [option for option in kept.pop("sbatch", ()) if option not in defaults] + list(
        requested.get("sbatch", ())
    )
    return {**kept, **requested, **({"sbatch": options} if options else {})}


def _container(spec: JobRecord) -> str | Literal[False] | None:
    """Return the image that was requested, False for --no-container, None for the image of the site."""
    had, of_the_site = (one.image if one else None for one in (spec.container, spec.site.container))
    return None if had == of_the_site else had or False


def _list_values(record: JobRecord) -> dict[str, object]:
    """Return the values of a record to compare, by key."""
    own = {key: value for key, value in record.all_values.items() if key not in _NOT_COMPARED}
    image = record.container.image if record.container else None  # all else of the container is the site's
    return {**record.resources.all_values, **own, "container": image, **_flatten(record.site.all_values, "site")}


def _flatten(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in table.items():
        name = f"{prefix}.{key}"
        found |= _flatten(value, name) if isinstance(value, dict) else {name: value}
    return found


def _format(value: object, key: str) -> str:
    if isinstance(value, list | tuple):
        return secrets.mask_command(" ".join(_format(each, key) for each in value)) or "nothing"
    return "nothing" if value is None else str(secrets.mask_value(value, key))
