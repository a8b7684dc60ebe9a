"""HTML reports on runs: one self-contained page without scripts, which shows output of jobs as plain text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.jobs import heartbeats, logs, safe_reading
from hpcrun.jobs.result_format import RESULT_LABELS, format_value
from hpcrun.jobs.run_files import GitRecord, SiteOrigins
from hpcrun.jobs.run_secrets import mask_secrets, masked_result
from hpcrun.jobs.states import describe_state
from hpcrun.report import comparison, plots
from hpcrun.report.run_facts import collect_facts, read_packages, read_provenance, read_provenance_record
from hpcrun.secrets import mask, mask_value
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.jobs.runs import Run
    from hpcrun.jobs.status_rows import StatusRow

GENERATOR = '<meta name="generator" content="hpcrun">'
"""The line that identifies a page as written by hpcrun; only such files are overwritten."""

MAX_LOG_LINES = 60
MAX_RANK_LOGS = 8
MAX_CHARACTERS = 200_000
"""Maximum length of a text, such as the diff of the code; longer texts are truncated."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL_CHARACTER = re.compile(
    r"[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def render_page(runs: Sequence[Run], rows: Sequence[StatusRow]) -> str:
    """Render the HTML page of a report on runs.

    Args:
        runs: The runs.
        rows: The status row of each run.

    Raises:
        HpcrunError: The page needs curves, and pygal is not installed.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hpcrun.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_replace_invalid,
    )
    environment.filters |= {"shown": format_value, "plain": describe_state}
    titles = list(map(_format_title, runs))
    labels = dict.fromkeys(titles) if len(set(titles)) == len(runs) else [f"{run.directory.name}" for run in runs]
    metrics = {name: [epoch.all_values for epoch in run.metrics()] for name, run in zip(labels, runs, strict=True)}
    facts_of_runs = [collect_facts(run) for run in runs]
    context = {
        "version": __version__,
        "title": titles[0] if len(runs) == 1 else f"{len(runs)} runs",
        "pictures": plots.draw_plots(metrics),
        "colours": plots.COLOUR_COUNT,
        "legend": list(labels) if len(runs) > 1 else [],
        "rows": [row for row in comparison.compare_facts(facts_of_runs) if row.differs] if len(runs) > 1 else [],
        "titles": titles,
        "jobs": [_job_context(run, row, title) for run, row, title in zip(runs, rows, titles, strict=True)],
    }
    return environment.get_template("page.html.j2").render(context)


def _format_title(run: Run) -> str:
    parts = [run.job_id or "", run.name, *map("=".join, run.values.items())]
    return str(_replace_invalid(" ".join(parts).strip()))


def _replace_invalid(value: object) -> object:
    """Replace control characters and invalid characters in a text, because a log may contain any bytes."""
    return (
        _CONTROL_CHARACTER.sub("\ufffd", value) if type(value) is str else value
    )  # only a str, not a Markup of jinja2


def strip_control_sequences(text: str) -> str:
    """Remove colours and control sequences from a text, and all states of a progress bar except the last."""
    lines = _ANSI.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _job_context(run: Run, row: StatusRow, title: str) -> dict[str, Any]:
    result = masked_result(run)
    labelled_values = {key: result[key] for key in RESULT_LABELS if key in result}
    other_values = {key: value for key, value in result.items() if key not in {*RESULT_LABELS, "versions"}}
    site = read_provenance_record(run, "site.json", SiteOrigins).origins
    texts = {
        "Script": mask(_read_file(run, "job.sh")),
        "Uncommitted changes": read_provenance(run, "code.diff"),
        "scontrol show job": mask(read_provenance(run, "slurm.txt") or ""),
    }
    facts = mask_value(collect_facts(run))
    return {
        "title": title,
        "row": row,
        "ended_well": row.state == "COMPLETED",
        "figures": [
            (RESULT_LABELS.get(key, key.replace("_", " ")), value)
            for key, value in (labelled_values | other_values).items()
        ],
        "ranks": compare_ranks(run),
        "logs": [
            (name, text, row.finished and row.state != "COMPLETED") for name, text in _read_logs(run) if text.strip()
        ],
        "sections": {
            "Arguments": facts["arguments"],
            "Environment (-x)": facts["environment"],
            "Resources": facts["resources"],
            "Job": facts["job"],
            "Code": facts.get("code", {})
            | {f"note {n}": note for n, note in enumerate(read_provenance_record(run, "git.json", GitRecord).notes, 1)},
            "Versions": facts.get("versions", {}),
        },
        "site": [(key, mask_value(origin.value, key), origin.place) for key, origin in site.items()],
        "packages": read_packages(run),
        "modules": list(facts.get("modules", {})),
        "texts": {
            name: _truncate(strip_control_sequences(text))
            for name, text in mask_secrets(texts, run).items()
            if text and text.strip()
        },
    }


def compare_ranks(run: Run) -> dict[str, Any]:
    """Compare the speed of ranks by their latest heartbeats.

    Returns:
        ``measured``: the name of the compared value; ``ranks``: for each rank, in order, its ``heartbeat``, its value
        (``figure``), and this value in percent of the largest value (``share``), each None if unknown.
    """
    heartbeats_by_rank = heartbeats.read_heartbeats(run.directory, heartbeats.find_ranks(run.directory))
    # synchronous ranks have the same rate, but different computing times per step
    has_own_times = any(heartbeat.own_seconds for heartbeat in heartbeats_by_rank.values())
    quantity = "own seconds per step" if has_own_times else "images/s"
    values = [
        heartbeat.own_seconds if has_own_times else heartbeat.images_per_second
        for heartbeat in heartbeats_by_rank.values()
    ]
    largest_value = max(values, default=0.0)
    rows = [
        {
            "heartbeat": heartbeat,
            "figure": value or None,
            "share": round(100 * value / largest_value) if value > 0 else None,
        }
        for heartbeat, value in zip(heartbeats_by_rank.values(), values, strict=True)
    ]
    return {"measured": quantity, "ranks": rows}


def _read_logs(run: Run) -> Iterable[tuple[str, str]]:
    for name, log in zip(("output", "errors"), logs.job_logs(run, line_count=MAX_LOG_LINES), strict=False):
        yield f"Log: {name}", _read_log(log, run)
    other_ranks = [rank for rank in run.rank_logs() if rank][:MAX_RANK_LOGS]  # rank 0's output is the job's log
    for rank in other_ranks:
        (log,) = logs.rank_logs(run, [rank], line_count=MAX_LOG_LINES, must_exist=False)
        yield f"Log: rank {rank}", _read_log(log, run)


def _read_log(log: logs.LogReader, run: Run) -> str:
    return mask(mask_secrets(strip_control_sequences(log.read_new(ended=True)), run))


def _read_file(run: Run, name: str) -> str:
    try:
        return safe_reading.read_text(run.directory / name, "replace")
    except (FileNotFoundError, safe_reading.BadRecordError):
        return ""


def _truncate(text: str) -> str:
    suffix = f"\n... and {len(text) - MAX_CHARACTERS:,} more characters; the run directory has them"
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + suffix
