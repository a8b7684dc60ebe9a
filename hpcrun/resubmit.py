"""Resubmission of an earlier run, or of tasks of a sweep, as a new job with changed options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcrun import job_levels, paths, secrets, submission, sweep
from hpcrun.errors import HpcrunError
from hpcrun.jobs import safe_reading
from hpcrun.jobs.job_record import JobRecord
from hpcrun.resources import MEMORY_OPTIONS
from hpcrun.sites import layer_files, loader
from hpcrun.workload import Workload, read_workload_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.request import Request
    from hpcrun.sites.site_model import Site
    from hpcrun.spec import JobSpec
    from hpcrun.submission import Plan

_IGNORED_RECORD_KEYS = {
    "run_dir", "template_folders", "hostfile", "tasks", "values", "snapshot", "site", "resources", "container",
}  # fmt: skip
"""Keys of ``job.json`` whose values `describe_changes` does not compare as a whole."""


def plan_resubmission(run: Run, request: Request, args: tuple[str, ...] | None, tasks: Sequence[int] = ()) -> Plan:
    """Plan a job that repeats a run. Nothing is written or submitted.

    Args:
        run: The run or sweep to repeat.
        request: The options that the user changes.
        args: New arguments of the program; None to keep them.
        tasks: The numbers of the sweep's tasks to repeat; each keeps its values and gets a new number.

    Raises:
        HpcrunError: The run has no record, its program does not exist any more, or the new job cannot run.
    """
    if not run.spec.is_repeatable:
        reason = f": it {run.faults['job.json']}" if "job.json" in run.faults else ""
        raise HpcrunError(
            f"{run.directory} has no job.json that says what ran{reason}", hint="submit it as you did then"
        )
    record = layer_files.read_source(run.directory / "job.json")
    spec = safe_reading.parse_record_text(JobRecord, secrets.restore_secrets(record.text, (run.sweep or run).directory))
    code_copy = (run.sweep or run).directory / "code"  # the tasks of a sweep share the copy
    reuses_copy = bool(spec.snapshot) and request.snapshot is not False
    if (
        spec.snapshot and not reuses_copy
    ):  # the job runs the current code in the folder from which the snapshot was copied
        spec = spec.with_replaced_path(code_copy, Path(spec.snapshot))
    loaded_site = loader.load_selected_site(request.site) if request.site else spec.site.load()
    loaded_site = replace(
        loaded_site, sources=(*loaded_site.sources, replace(record, is_record=True))
    )  # the record must be trusted, because its bash lines would run
    kept_tasks = [spec.tasks[number] for number in tasks]
    program, old_arguments = _find_program(
        spec, kept_tasks[0].argv if kept_tasks else spec.argv, must_check_arguments=args is not None
    )
    options = request.job_options_with_defaults(spec)
    if "gpus_per_node" in request.resources:
        options["no_gpu"] = request.no_gpu
    if request.site:  # use the defaults of the current site file
        options |= {name: options[name] or None for name in ("max_requeue", "memory_retries")}
    complete_request = replace(
        request,
        resources=_merge_resources(_recorded_resources(run, spec), request.resources, loaded_site.site),
        environment=(*spec.environment, *request.environment),
        container=_requested_container(spec) if request.container is None else request.container,
        **options,
    )
    arguments = old_arguments if args is None else args
    swept_tasks = [(tuple(task.values), tuple(task.argv[len(program.program) :])) for task in kept_tasks]
    if args is not None:
        swept_tasks = [(values, sweep.build_arguments(args, values, program.option_names)) for values, _ in swept_tasks]
    directories = {"directory": Path(spec.directory), "copied_snapshot": code_copy if reuses_copy else None}
    plan = submission.plan(complete_request, loaded_site, program, arguments, tasks=swept_tasks, **directories)
    return (
        replace(plan, spec=replace(plan.spec, snapshot=Path(spec.snapshot))) if reuses_copy and spec.snapshot else plan
    )


def describe_changes(run: Run, spec: JobSpec, tasks: Sequence[int] = ()) -> list[str]:
    """Return a line about each difference from an earlier run, such as ``nodes: 2, was 1``.

    Args:
        run: The earlier run or sweep.
        spec: The new job.
        tasks: The numbers of the sweep's repeated tasks; only the first is compared.
    """
    old_record = run.spec.with_replaced_path(
        (run.sweep or run).directory, spec.run_dir
    )  # the new job gets a copy of the snapshot
    new_record = safe_reading.parse_record_text(JobRecord, json.dumps(spec.as_json(), default=str))
    old_values, new_values = _list_values(old_record), _list_values(new_record)
    if tasks:
        argv_key = "argv of the first task"
        old_values[argv_key], new_values[argv_key] = old_record.tasks[tasks[0]].argv, new_record.tasks[0].argv
    keys = dict.fromkeys([*old_values, *new_values])
    # skip keys that the old record lacks: they are newer than the version of hpcrun that wrote the record
    changed_keys = [
        key for key in keys if old_values.get(key) != new_values.get(key) and (key in old_values or new_values[key])
    ]
    return [
        f"{key}: {_format_value(new_values.get(key), key)}, was {_format_value(old_values.get(key), key)}"
        for key in changed_keys
    ]


def _find_program(
    spec: JobRecord, argv: Sequence[str], *, must_check_arguments: bool
) -> tuple[Workload, tuple[str, ...]]:
    """Return the program and arguments of a run; the program includes declared options if arguments must be checked."""
    executable, *words = argv
    interpreters = {spec.python, spec.container.python if spec.container else None}
    if executable not in interpreters or not words or not words[0].endswith(".py"):
        return Workload(name=spec.name, program=(executable,)), tuple(words)
    script = Path(words[0])
    if not script.is_file():
        raise HpcrunError(f"its program {script} does not exist any more", hint="put it back, or submit another")
    options = (
        read_workload_folder(script.parent).options
        if must_check_arguments and (script.parent / "workload.toml").is_file()
        else None
    )
    folder = script.parent
    target = folder.name if folder.parent == paths.shipped_folder("workloads") else str(folder)
    return Workload(name=spec.name, program=(None, str(script)), options=options, target=target), tuple(words[1:])


def _recorded_resources(run: Run, spec: JobRecord) -> dict[str, Any]:
    try:
        return spec.resources.to_resources().explicit()
    except ValueError as error:
        hint = "another version of hpcrun may have written it: submit the job with its original command"
        raise HpcrunError(f"{run.directory}/job.json: resources: {error}", hint=hint) from None


def _merge_resources(
    old_resources: Mapping[str, Any], requested_resources: dict[str, Any], site: Site
) -> dict[str, Any]:
    """Merge requested resources into those of the earlier job; drop values that depend on changed values."""
    dropped_names = {"dependency"}  # the old dependency has ended long ago
    if "ntasks" in requested_resources or "gpus_per_node" in requested_resources:
        dropped_names.add("ntasks_per_node")
    if {"nodes", "ntasks_per_node", "gpus_per_node"} & set(requested_resources):
        dropped_names.add("ntasks")
    dropped_names |= set(MEMORY_OPTIONS) if set(MEMORY_OPTIONS) & set(requested_resources) else set()
    kept_resources = {name: value for name, value in old_resources.items() if name not in dropped_names}
    default_options = job_levels.resolve_site({**old_resources, **requested_resources}, site).defaults.sbatch
    sbatch_options = [option for option in kept_resources.pop("sbatch", ()) if option not in default_options] + list(
        requested_resources.get("sbatch", ())
    )
    return {**kept_resources, **requested_resources, **({"sbatch": sbatch_options} if sbatch_options else {})}


def _requested_container(spec: JobRecord) -> str | Literal[False] | None:
    """Return the image of the earlier request; False for --no-container, None for the site's image."""
    job_image, site_image = (one.image if one else None for one in (spec.container, spec.site.container))
    return None if job_image == site_image else job_image or False


def _list_values(record: JobRecord) -> dict[str, object]:
    """Return the values of a record that `describe_changes` compares, by key."""
    other_values = {key: value for key, value in record.all_values.items() if key not in _IGNORED_RECORD_KEYS}
    # the container's other settings are compared as part of the site
    image = record.container.image if record.container else None
    return {
        **record.resources.all_values,
        **other_values,
        "container": image,
        **_flatten(record.site.all_values, "site"),
    }


def _flatten(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    values_by_key: dict[str, object] = {}
    for key, value in table.items():
        full_key = f"{prefix}.{key}"
        values_by_key |= _flatten(value, full_key) if isinstance(value, dict) else {full_key: value}
    return values_by_key


def _format_value(value: object, key: str) -> str:
    if isinstance(value, list | tuple):
        return secrets.mask_command(" ".join(_format_value(each, key) for each in value)) or "nothing"
    return "nothing" if value is None else str(secrets.mask_value(value, key))
