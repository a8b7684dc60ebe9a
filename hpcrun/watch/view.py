"""The picture of a job, drawn line by line for a terminal of any size."""

from __future__ import annotations

import time
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.text import Text

from hpcrun.errors import sanitize
from hpcrun.jobs.rows import duration, speed
from hpcrun.jobs.states import plain
from hpcrun.watch.chart import chart
from hpcrun.watch.ranks import worst_first
from hpcrun.watch.words import figure, figures, span, step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from hpcrun.watch.picture import Picture
    from hpcrun.watch.ranks import Seen

COLOURS = {"RUNNING": "green", "COMPLETED": "green", "PENDING": "yellow", "UNKNOWN": "yellow"}
TROUBLE = {"silent": "bold red", "awaited": "bold red", "waiting": "bold red", "slow": "yellow"}
LEAST_LOG = 4
LAST_LOG = 11
CHART_GAP = 4
NATURAL_LINES = 40
MOST_DAYS = 1000  # that anybody wants to know a date after


class View:
    """A picture as rich draws it: as large as the terminal is now.

    Args:
        picture: The picture.
        whole: Whether it has the whole screen; otherwise it takes no more lines than it needs.
    """

    def __init__(self, picture: Picture, *, whole: bool) -> None:
        self.picture, self.whole = picture, whole

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        height = options.max_height if self.whole else NATURAL_LINES
        drawn = lines(self.picture, options.max_width, height)
        for line in drawn[:height]:
            line.no_wrap, line.overflow = True, "ellipsis"
            if (shown := sanitize(line.plain)) != line.plain:  # of logs, records and names of others
                line.plain = shown
            yield line


def lines(picture: Picture, width: int, height: int) -> list[Text]:
    """Return the lines, each of which may be cut at the right.

    Args:
        picture: The picture.
        width: Columns.
        height: The most lines.
    """
    top = [*_head(picture, width), *_waiting(picture, width), *_training(picture, width)]
    for warning in picture.warnings.values():
        top += _folded(f"WARNING: {warning}", width, "bold yellow")
    left = height - len(top)
    rows = 8 if left >= 30 else 4 if left >= 17 else 2 if left >= 11 else 0
    charts = _charts(picture, width, rows) if rows else []
    left -= len(charts)
    ranks = _ranks(picture, width, max(left - LEAST_LOG - 1, 0) if left < 16 else left * 2 // 3)
    left -= len(ranks)
    if picture.over:  # what ended it is in the log; how it went well is told behind all this
        left = 0 if picture.row and picture.row.state == "COMPLETED" else min(left, LAST_LOG)
    return [*top, *charts, *ranks, *_log(picture, width, left)]


def _head(picture: Picture, width: int) -> list[Text]:
    run, row = picture.run, picture.row
    title = Text.assemble(("job ", "dim"), (f"{run.job_id or '-'} {run.name}", "bold"), (f" on {run.place}", "dim"))
    now = time.strftime("%H:%M:%S")
    title.append(" " * max(1, width - title.cell_len - len(now)) + now, "dim")
    if row is None:
        return [title, Text("asking what became of it ...", "dim")]
    colour = COLOURS.get(row.state, "red" if row.finished else "cyan")
    words = Text(plain(row.state), f"bold {colour}")
    if row.as_of:
        words.append(f" (as of {row.as_of[11:19]}): {row.reason}")
    elif row.reason and row.state != "COMPLETED" and not picture.why:
        words.append(f": {row.reason}")
    if row.nodes:
        words.append(f" on {row.nodes}")
    elif row.nodes_asked:
        words.append(f", {row.nodes_asked} node{'s' * (row.nodes_asked > 1)}")
    if row.ranks:
        words.append(f", {row.ranks} rank{'s' * (row.ranks > 1)}")
    if picture.elapsed is not None and not picture.why:
        words.append(f", {duration(picture.elapsed)}" + (f" of {row.limit}" if row.limit else ""))
    elif row.limit:
        words.append(f", limit {row.limit}")
    if (again := row.starts - 1) > 0:
        words.append(f", started again {again} time{'s' * (again > 1)}", "yellow")
    return [title, words]


def _waiting(picture: Picture, width: int) -> list[Text]:
    if not picture.why:
        return []
    found = picture.why.diagnosis
    told = _folded(f"why: {found.summary}", width)
    for seen in found.evidence:
        told += _folded(f"     {seen.source}: {seen.line}", width, "dim")
    return told + (_folded(f"what to do: {found.fix}", width) if found.fix else [])


def _folded(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, style) for line in wrap(text, width, subsequent_indent="     ")]


def _training(picture: Picture, width: int) -> list[Text]:
    course = picture.course
    if not course.epoch:
        return []
    told = []
    words = course.place
    if course.images_per_second:
        words += f", {speed(course.images_per_second)}"
    if picture.runs and course.step_seconds:
        words += f", {step(course.step_seconds)} a step"
    if course.done is not None:
        percent = f" {100 * course.done:5.1f} %"
        room = max(width - len(percent), 1)
        full = int(room * course.done)
        told.append(Text.assemble(("━" * full, "green"), ("─" * (room - full), "dim"), percent))
        if picture.runs and course.seconds_left and course.phase != "trained":
            words += f", {span(course.seconds_left)} left{_until(course.seconds_left)}"
    told.append(Text(words))
    if course.figures:
        told.append(Text(figures(course.figures), "cyan"))
    return told


def _until(seconds_left: float) -> str:
    if seconds_left > MOST_DAYS * 86400:
        return ""
    form = "%a %H:%M" if seconds_left < 6 * 86400 else "%Y-%m-%d"
    return time.strftime(f" (until {form})", time.localtime(time.time() + seconds_left))


def _charts(picture: Picture, width: int, rows: int) -> list[Text]:
    course = picture.course
    curves = [
        (name, [value for value in values if value is not None], values, floor, colour)
        for name, values, floor, colour in (
            ("loss", course.losses, None, "magenta"),
            ("images/s", course.rates, 0.0, "blue"),
        )
        if sum(value is not None for value in values) >= 2
    ]
    if not curves:
        return []
    room = (width - CHART_GAP * (len(curves) - 1)) // len(curves)
    drawn = [Text() for _ in range(rows + 1)]
    for number, (name, known, values, floor, colour) in enumerate(curves):
        head = f"{name} {figure(known[0])} → {figure(known[-1])}"
        extremes = f", {figure(min(known))} to {figure(max(known))}"
        head += extremes if len(head + extremes) <= room else ""
        for line, text in zip(drawn, [head, *chart(values, room, rows, floor=floor)], strict=True):
            line.append((" " * CHART_GAP if number else "") + text[:room].ljust(room), colour)
    return drawn


def _ranks(picture: Picture, width: int, room: int) -> list[Text]:
    """Return a table of the ranks: all of them where there is room, else those in trouble and the slowest."""
    seen = picture.ranks
    if not seen:
        return []
    head = _rule(_summary(picture), width)
    if room < 3:
        return [head]
    shown = list(seen) if len(seen) <= room - 2 else worst_first(seen)[: room - 3]
    cells = [("rank", "host", "step", "own", "waits", "heard", ""), *map(_cells, shown)]
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    told = [head]
    for number, row in enumerate(cells):
        line = "  ".join(
            text.rjust(size) if column not in {1, 6} else text.ljust(size)
            for column, (text, size) in enumerate(zip(row, [*widths, 0], strict=True))
        )
        told.append(Text(line.rstrip(), "dim" if number == 0 else TROUBLE.get(shown[number - 1].trouble, "")))
    if len(shown) < len(seen):
        told.append(Text(_others([rank for rank in seen if rank not in shown]), "dim"))
    return told


def _summary(picture: Picture) -> str:
    seen, asked = picture.ranks, picture.row.ranks if picture.row else None
    heard = (
        f"{len(seen)} of {asked} ranks" if asked and asked > len(seen) else f"{len(seen)} rank{'s' * (len(seen) > 1)}"
    )
    hosts = len({rank.beat.host for rank in seen})
    counts = {name: sum(rank.trouble == name for rank in seen) for name in TROUBLE}
    wrong = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{heard} on {hosts} host{'s' * (hosts > 1)}: {wrong or 'all well'}"


def _cells(rank: Seen) -> tuple[str, ...]:
    beat = rank.beat
    place = f"{beat.epoch}:{beat.step}" if beat.epoch else "-"
    own = waits = "-"
    if beat.step_seconds > 0:
        own, waits = step(beat.own_seconds), f"{100 * rank.waits:.0f} %"
    return str(beat.rank), beat.host, place, own, waits, f"{span(rank.age)} ago", rank.says


def _others(ranks: Sequence[Seen]) -> str:
    paces = sorted(rank.beat.own_seconds for rank in ranks if rank.beat.step_seconds > 0)
    own = f": {step(paces[0])} to {step(paces[-1])} of their own a step" if paces else ""
    wrong = sum(bool(rank.trouble) for rank in ranks)
    return f"and {len(ranks)} others{own}" + (f"; {wrong} of them in trouble" if wrong else "")


def _log(picture: Picture, width: int, room: int) -> list[Text]:
    if room < 2 or not picture.log:
        return []
    return [_rule("log", width), *(Text(line) for line in picture.log[1 - room :])]


def _rule(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─"), "dim")
