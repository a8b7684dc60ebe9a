"""An old run, or tasks of a sweep, as a new job: the record, with what is asked for now over it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpcrun import pipeline, secrets, sweep
from hpcrun.errors import HpcrunError
from hpcrun.jobs import records
from hpcrun.jobs.job_record import JobRecord
from hpcrun.resources import MEMORY
from hpcrun.sites import layer_files, loader
from hpcrun.workload import Workload, from_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.pipeline import Plan
    from hpcrun.request import Request
    from hpcrun.sites.model import Site
    from hpcrun.spec import JobSpec

_APART = ("run_dir", "template_folders", "hostfile", "tasks", "values", "snapshot", "site")
"""What differs between any two runs, or is not repeated; the site is compared key by key, and the first task's argv."""


def again(run: Run, request: Request, args: tuple[str, ...] | None, tasks: Sequence[int] = ()) -> Plan:
    """Decide everything about a job that repeats a run; nothing is written or submitted.

    Args:
        run: The run, or a sweep.
        request: What is to be different.
        args: The program's arguments in place of the old ones; None for these.
        tasks: Which tasks of the sweep are repeated; each keeps its values, and is numbered anew.

    Raises:
        HpcrunError: The run has no record, its program is gone, or what is asked for cannot work.
    """
    ran = run.spec.argv or run.spec.tasks
    if not ran or {"name", "site", "resources", "directory"} - run.spec.said.keys():
        why = f": it {run.faults['job.json']}" if "job.json" in run.faults else ""
        raise HpcrunError(f"{run.directory} has no job.json that says what ran{why}", hint="submit it as you did then")
    record = layer_files.read_source(run.directory / "job.json")
    spec = records.parsed_text(JobRecord, secrets.restore_secrets(record.text, (run.sweep or run).directory))
    copy = (run.sweep or run).directory / "code"  # a sweep has one copy
    copied = bool(spec.snapshot) and request.snapshot is not False
    if spec.snapshot and not copied:  # then the code as it is today, where it was copied from
        text = json.dumps(spec.said, ensure_ascii=False).replace(str(copy), spec.snapshot)
        spec = records.parsed_text(JobRecord, text)
    found = loader.load_selected_site(request.site) if request.site else loader.site_from_record(dict(spec.site.said))
    found = replace(found, sources=(*found.sources, replace(record, record=True)))  # its lines would run, too
    kept = [spec.tasks[number] for number in tasks]
    program, old = _program(spec, kept[0].argv if kept else spec.argv, checked=args is not None)
    asked = spec.max_requeue if request.max_requeue is None else request.max_requeue
    whole = replace(
        request,
        resources=_resources(spec.resources.said, request.resources, found.site),
        environment=(*spec.environment, *request.environment),
        no_gpu=request.no_gpu or (spec.no_gpu and "gpus_per_node" not in request.resources),
        output_on_all_ranks=request.output_on_all_ranks or spec.output_on_all_ranks,
        log_level=request.log_level if request.log_level != "WARNING" else spec.log_level,
        fusion_threshold_kb=_first(request.fusion_threshold_kb, spec.fusion_threshold_kb),
        cpu_bind=_first(request.cpu_bind, spec.cpu_bind),
        container=_container(spec) if request.container is None else request.container,
        max_parallel=_first(request.max_parallel, spec.max_parallel),
        max_requeue=None if request.site and not asked else asked,
    )
    words = old if args is None else args
    swept = [(tuple(task.values), tuple(task.argv[len(program.program) :])) for task in kept]
    if args is not None:
        swept = [(values, sweep.arguments(args, values, program.spellings)) for values, _ in swept]
    where = {"directory": Path(spec.directory), "copied": copy if copied else None}
    plan = pipeline.plan(whole, found, program, words, tasks=swept, **where)
    return replace(plan, spec=replace(plan.spec, snapshot=Path(spec.snapshot))) if copied and spec.snapshot else plan


def changes(run: Run, spec: JobSpec, tasks: Sequence[int] = ()) -> list[str]:
    """Return what is not as it was, a line each: ``nodes: 2, was 1``; of a sweep's arguments the first task's.

    Args:
        run: The old run, or sweep.
        spec: The new job.
        tasks: Which tasks of the sweep it repeats.
    """
    # a snapshot of the code goes with it
    old = json.dumps(run.spec.said, ensure_ascii=False).replace(str((run.sweep or run).directory), str(spec.run_dir))
    then, new = json.loads(old), json.loads(json.dumps(spec.as_json(), default=str))
    if tasks:
        first = "argv of the first task"
        then[first], new[first] = then["tasks"][tasks[0]]["argv"], new["tasks"][0]["argv"]
    before, now = _flat(then), _flat(new)
    keys = dict.fromkeys([*before, *now])
    # what a record does not have, the version that wrote it did not know
    changed = [key for key in keys if before.get(key) != now.get(key) and (key in before or now[key])]
    return [f"{key}: {_shown(now.get(key), key)}, was {_shown(before.get(key), key)}" for key in changed]


def _program(spec: JobRecord, argv: Sequence[str], *, checked: bool) -> tuple[Workload, tuple[str, ...]]:
    """Return what ran, and its arguments; where these are new, a workload's declared options are what they must fit."""
    first, *rest = argv
    pythons = {spec.python, (spec.container or {}).get("python")}
    if first not in pythons or not rest or not rest[0].endswith(".py"):
        return Workload(name=spec.name, program=(first,)), tuple(rest)
    script = Path(rest[0])
    if not script.is_file():
        raise HpcrunError(f"its program {script} is not there any more", hint="put it back, or submit another")
    options = from_folder(script.parent).options if checked and (script.parent / "workload.toml").is_file() else None
    return Workload(name=spec.name, program=(None, str(script)), options=options), tuple(rest[1:])


def _resources(old: Mapping[str, Any], asked: dict[str, Any], site: Site) -> dict[str, Any]:
    """Return what was asked for over what the old job had; numbers that followed from others follow anew."""
    gone = {"dependency"}  # on jobs that have ended long ago
    if "ntasks" in asked or "gpus_per_node" in asked:
        gone.add("ntasks_per_node")
    if {"nodes", "ntasks_per_node", "gpus_per_node"} & set(asked):
        gone.add("ntasks")
    gone |= set(MEMORY) if set(MEMORY) & set(asked) else set()
    kept = {name: value for name, value in old.items() if name not in gone}
    partition, qos = (asked.get(name, old.get(name)) for name in ("partition", "qos"))
    defaults = site.at(partition, qos).defaults.sbatch
    options = [option for option in kept.pop("sbatch", ()) if option not in defaults] + list(asked.get("sbatch", ()))
    return {**kept, **asked, **({"sbatch": options} if options else {})}


def _container(spec: JobRecord) -> str | Literal[False] | None:
    """Return the image that somebody had asked for, False for none, None where it was the site's."""
    had, of_the_site = ((table or {}).get("image") for table in (spec.container, spec.site.container))
    return None if had == of_the_site else had or False


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _flat(spec: dict[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in spec.items() if key not in {*_APART, "resources", "container"}}
    container = {"container": (spec.get("container") or {}).get("image")}  # all else of it is the site's
    return {**spec.get("resources", {}), **own, **container, **_leaves(spec.get("site", {}), "site")}


def _leaves(table: dict[str, Any], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = f"{prefix}.{key}"
        found |= _leaves(value, name) if isinstance(value, dict) else {name: value}
    return found


def _shown(value: Any, key: str) -> str:
    if isinstance(value, list | tuple):
        return secrets.mask_command(" ".join(_shown(each, key) for each in value)) or "nothing"
    return "nothing" if value is None else str(secrets.mask_value(value, key))
