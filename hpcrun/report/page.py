"""One HTML page on runs: it needs no network and no scripts, and shows what it is given as text only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.jobs import heartbeats, logs, records
from hpcrun.jobs.figures import FIGURES, shown
from hpcrun.jobs.run_files import GitRecord, SiteOrigins
from hpcrun.jobs.states import plain
from hpcrun.report import compare, curves
from hpcrun.report.facts import facts, kept, kept_record, packages
from hpcrun.secrets import mask, mask_value
from hpcrun.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.jobs.rows import Row
    from hpcrun.jobs.runs import Run

GENERATOR = '<meta name="generator" content="hpcrun">'
"""By this line of its template a page is known as one that may be written anew."""

LOG_LINES = 60
MOST_RANK_LOGS = 8
MOST_CHARACTERS = 200_000
"""Of a longer text, such as the diff of the code, the page has the beginning."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_CONTROL = re.compile(
    r"[^\t\n\x20-\x7e\xa0-\u061b\u061d-\u200d\u2010-\u2027\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


def page(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    """Return the text of a page on runs.

    Args:
        runs: The runs.
        rows: What is known of each one's state.

    Raises:
        HpcrunError: It has curves, and pygal is not installed.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hpcrun.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_text,
    )
    environment.filters |= {"shown": shown, "plain": plain}
    titles = list(map(_title, runs))
    named = dict.fromkeys(titles) if len(set(titles)) == len(runs) else [f"{run.directory.name}" for run in runs]
    metrics = {name: [epoch.said for epoch in run.metrics()] for name, run in zip(named, runs, strict=True)}
    known = [facts(run) for run in runs]
    context = {
        "version": __version__,
        "title": titles[0] if len(runs) == 1 else f"{len(runs)} runs",
        "pictures": curves.pictures(metrics),
        "colours": curves.COLOURS,
        "legend": list(named) if len(runs) > 1 else [],
        "rows": [row for row in compare.rows(known) if row.differs] if len(runs) > 1 else [],
        "titles": titles,
        "jobs": [_job(run, row, title) for run, row, title in zip(runs, rows, titles, strict=True)],
    }
    return environment.get_template("page.html.j2").render(context)


def _title(run: Run) -> str:
    words = [run.job_id or "", run.name, *map("=".join, run.values.items())]
    return str(_text(" ".join(words).strip()))


def _text(value: object) -> object:
    """Take out what is no character of a text: a log may have any bytes."""
    return _CONTROL.sub("\ufffd", value) if type(value) is str else value  # and not markup, which is our own


def clean(text: str) -> str:
    """Return a text as a terminal shows it in the end: without colours, and of a progress bar its last state."""
    lines = _ANSI.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _job(run: Run, row: Row, title: str) -> dict[str, Any]:
    result = run.result() or {}
    first = {key: result[key] for key in FIGURES if key in result}
    others = {key: value for key, value in result.items() if key not in {*FIGURES, "versions"}}
    site = kept_record(run, "site.json", SiteOrigins).values
    texts = {
        "Script": mask(_read(run, "job.sh")),
        "Uncommitted changes": kept(run, "code.diff"),
        "What Slurm says of the job": kept(run, "slurm.txt"),
    }
    told = mask_value(facts(run))
    return {
        "title": title,
        "row": row,
        "ended_well": row.state == "COMPLETED",
        "figures": [(FIGURES.get(key, key.replace("_", " ")), value) for key, value in (first | others).items()],
        "ranks": ranks(run),
        "logs": [(name, text, row.finished and row.state != "COMPLETED") for name, text in _logs(run) if text.strip()],
        "sections": {
            "Arguments": told["arguments"],
            "Environment (-x)": told["environment"],
            "Resources": told["resources"],
            "Job": told["job"],
            "Code": told.get("code", {})
            | {f"note {n}": note for n, note in enumerate(kept_record(run, "git.json", GitRecord).notes, 1)},
            "Versions": told.get("versions", {}),
        },
        "site": [
            (key, mask_value(one.get("value"), key), one.get("from"))
            for key, one in site.items()
            if isinstance(one, dict)
        ],
        "packages": packages(run),
        "modules": list(told.get("modules", {})),
        "texts": {name: _beginning(clean(text)) for name, text in texts.items() if text and text.strip()},
    }


def ranks(run: Run) -> dict[str, Any]:
    """Return what the ranks said last of their progress.

    Returns:
        ``measured``: what is compared; ``ranks``: in order, what each one said (``beat``), with that ``figure`` and its
        ``share`` of the largest in percent, where it is known.
    """
    beats = heartbeats.read_all(run.directory, heartbeats.ranks(run.directory))
    # ranks in step with each other are equally fast: how long each one works tells them apart
    own = any(beat.own_seconds for beat in beats.values())
    measured = "own seconds a step" if own else "images/s"
    figures = [beat.own_seconds if own else beat.images_per_second for beat in beats.values()]
    largest = max(figures, default=0.0)
    told = [
        {"beat": beat, "figure": figure or None, "share": round(100 * figure / largest) if figure > 0 else None}
        for beat, figure in zip(beats.values(), figures, strict=True)
    ]
    return {"measured": measured, "ranks": told}


def _logs(run: Run) -> Iterable[tuple[str, str]]:
    for name, log in zip(("output", "errors"), logs.of_job(run, last=LOG_LINES), strict=False):
        yield f"Log: {name}", mask(clean(log.new(ended=True)))
    others = [rank for rank in run.rank_logs() if rank][:MOST_RANK_LOGS]  # rank 0's output is the job's log
    for rank in others:
        (log,) = logs.of_ranks(run, [rank], last=LOG_LINES, must_exist=False)
        yield f"Log: rank {rank}", mask(clean(log.new(ended=True)))


def _read(run: Run, name: str) -> str:
    try:
        return records.text(run.directory / name, "replace")
    except (FileNotFoundError, records.BadRecordError):
        return ""


def _beginning(text: str) -> str:
    more = f"\n... and {len(text) - MOST_CHARACTERS:,} more characters; the run directory has them"
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + more
