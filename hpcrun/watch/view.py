"""Rendering of a job's state as lines for a terminal of any size."""

from __future__ import annotations

import time
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.text import Text

from hpcrun.errors import pluralize, sanitize
from hpcrun.jobs.progress_text import format_elapsed, format_rate
from hpcrun.watch.chart import draw_chart
from hpcrun.watch.format import format_duration, format_metric, format_metrics, format_step_time
from hpcrun.watch.rank_monitor import worst_first
from hpcrun.watch.wait_messages import format_start

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

    from hpcrun.watch.rank_monitor import RankStatus
    from hpcrun.watch.watcher import WatchState

STATE_COLOURS = {"RUNNING": "green", "COMPLETED": "green", "PENDING": "yellow", "UNKNOWN": "yellow"}
TROUBLE_STYLES = {"silent": "bold red", "awaited": "bold red", "waiting": "bold red", "slow": "yellow"}
MIN_LOG_LINES = 4
FINAL_LOG_LINES = 11
CHART_GAP = 4
MAX_FINAL_LINES = 40
MAX_DAYS = 1000  # show no estimated end time beyond this


class WatchView:
    """A rich renderable of a job's state, as large as the terminal.

    Args:
        state: The job's state.
        full_screen: Whether to fill the screen; otherwise it has only as many lines as needed.
    """

    def __init__(self, state: WatchState, *, full_screen: bool) -> None:
        self.state, self.full_screen = state, full_screen

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        height = options.max_height if self.full_screen else MAX_FINAL_LINES
        drawn = render_lines(self.state, options.max_width, height)
        for line in drawn[:height]:
            line.no_wrap, line.overflow = True, "ellipsis"
            if (shown := sanitize(line.plain)) != line.plain:  # escape control characters of logs, records and names
                line.plain = shown
            yield line


def render_lines(state: WatchState, width: int, height: int) -> list[Text]:
    """Return the lines; a line may be wider than the terminal.

    Args:
        state: The job's state.
        width: The number of columns.
        height: The maximum number of lines.
    """
    top = [*_render_header(state, width), *_render_pending_reason(state, width), *_render_training(state, width)]
    for warning in state.warnings.values():
        top += _wrap_text(f"WARNING: {warning}", width, "bold yellow")
    left = height - len(top)
    rows = 8 if left >= 30 else 4 if left >= 17 else 2 if left >= 11 else 0
    charts = _render_charts(state, width, rows) if rows else []
    left -= len(charts)
    ranks = _render_ranks(state, width, max(left - MIN_LOG_LINES - 1, 0) if left < 16 else left * 2 // 3)
    left -= len(ranks)
    if state.finished:  # the log explains a failure; the caller reports success
        left = 0 if state.row and state.row.state == "COMPLETED" else min(left, FINAL_LOG_LINES)
    return [*top, *charts, *ranks, *_render_log(state, width, left)]


def _render_header(state: WatchState, width: int) -> list[Text]:
    run, row = state.run, state.row
    title = Text.assemble(
        ("job ", "dim"), (f"{run.job_id or '-'} {run.name}", "bold"), (f" on {run.site_label}", "dim")
    )
    now = time.strftime("%H:%M:%S")
    title.append(" " * max(1, width - title.cell_len - len(now)) + now, "dim")
    if row is None:
        return [title, Text("querying the scheduler ...", "dim")]
    colour = STATE_COLOURS.get(row.state, "red" if row.finished else "cyan")
    words = Text(row.plain_state, f"bold {colour}")
    if row.as_of:
        words.append(f" (as of {row.as_of[11:19]}): {row.reason}")
    elif row.reason and row.state != "COMPLETED" and not state.why:
        words.append(f": {row.reason}")
    if row.nodes:
        words.append(f" on {row.nodes}")
    elif row.nodes_asked:
        words.append(f", {pluralize(row.nodes_asked, 'node')}")
    if row.ranks:
        words.append(f", {pluralize(row.ranks, 'rank')}")
    if state.elapsed is not None and not state.why:
        words.append(f", {format_elapsed(state.elapsed)}" + (f" of {row.limit}" if row.limit else ""))
    elif row.limit:
        words.append(f", limit {row.limit}")
    if (again := row.starts - 1) > 0:
        words.append(f", started again {pluralize(again, 'time')}", "yellow")
    return [title, words]


def _render_pending_reason(state: WatchState, width: int) -> list[Text]:
    if not state.why:
        return []
    found = state.why.diagnosis
    lines = _wrap_text(f"why: {found.summary}", width)
    for seen in found.evidence:
        lines += _wrap_text(f"     {seen.source}: {seen.line}", width, "dim")
    return lines + (_wrap_text(f"what to do: {found.fix}", width) if found.fix else [])


def _wrap_text(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, style) for line in wrap(text, width, subsequent_indent="     ")]


def _render_training(state: WatchState, width: int) -> list[Text]:
    progress = state.progress
    if state.start:
        return [Text(format_start(state.start))]
    if not progress.epoch:
        return []
    lines = []
    words = progress.position
    if progress.images_per_second:
        words += f", {format_rate(progress.images_per_second)}"
    if state.is_running and progress.step_seconds:
        words += f", {format_step_time(progress.step_seconds)} per step"
    if progress.done is not None:
        percent = f" {100 * progress.done:5.1f} %"
        space = max(width - len(percent), 1)
        full = int(space * progress.done)
        lines.append(Text.assemble(("━" * full, "green"), ("─" * (space - full), "dim"), percent))
        if state.is_running and progress.seconds_left and progress.phase != "trained":
            words += f", {format_duration(progress.seconds_left)} left{_format_finish_time(progress.seconds_left)}"
    lines.append(Text(words))
    if progress.metrics:
        lines.append(Text(format_metrics(progress.metrics), "cyan"))
    return lines


def _format_finish_time(seconds_left: float) -> str:
    if seconds_left > MAX_DAYS * 86400:
        return ""
    form = "%a %H:%M" if seconds_left < 6 * 86400 else "%Y-%m-%d"
    return time.strftime(f" (until {form})", time.localtime(time.time() + seconds_left))


def _render_charts(state: WatchState, width: int, rows: int) -> list[Text]:
    progress = state.progress
    curves = [
        (name, [value for value in values if value is not None], values, floor, colour)
        for name, values, floor, colour in (
            ("loss", progress.losses, None, "magenta"),
            ("images/s", progress.rates, 0.0, "blue"),
        )
        if sum(value is not None for value in values) >= 2
    ]
    if not curves:
        return []
    space = (width - CHART_GAP * (len(curves) - 1)) // len(curves)
    drawn = [Text() for _ in range(rows + 1)]
    for number, (name, known, values, floor, colour) in enumerate(curves):
        head = f"{name} {format_metric(known[0])} → {format_metric(known[-1])}"
        extremes = f", {format_metric(min(known))} to {format_metric(max(known))}"
        head += extremes if len(head + extremes) <= space else ""
        for line, text in zip(drawn, [head, *draw_chart(values, space, rows, floor=floor)], strict=True):
            line.append((" " * CHART_GAP if number else "") + text[:space].ljust(space), colour)
    return drawn


def _render_ranks(state: WatchState, width: int, space: int) -> list[Text]:
    """Return a table of all ranks, or of those with problems and the slowest ones if space is limited."""
    seen = state.ranks
    if not seen:
        return []
    head = _draw_rule(_summarize_ranks(state), width)
    if space < 3:
        return [head]
    shown = list(seen) if len(seen) <= space - 2 else worst_first(seen)[: space - 3]
    cells = [("rank", "host", "step", "own", "waits", "heard", ""), *map(_rank_cells, shown)]
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    lines = [head]
    for number, row in enumerate(cells):
        line = "  ".join(
            text.rjust(size) if column not in {1, 6} else text.ljust(size)
            for column, (text, size) in enumerate(zip(row, [*widths, 0], strict=True))
        )
        lines.append(Text(line.rstrip(), "dim" if number == 0 else TROUBLE_STYLES.get(shown[number - 1].trouble, "")))
    if len(shown) < len(seen):
        lines.append(Text(_summarize_others([rank for rank in seen if rank not in shown]), "dim"))
    return lines


def _summarize_ranks(state: WatchState) -> str:
    seen, asked = state.ranks, state.row.ranks if state.row else None
    heard = f"{len(seen)} of {asked} ranks" if asked and asked > len(seen) else pluralize(len(seen), "rank")
    hosts = len({rank.heartbeat.host for rank in seen})
    counts = {name: sum(rank.trouble == name for rank in seen) for name in TROUBLE_STYLES}
    wrong = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{heard} on {pluralize(hosts, 'host')}: {wrong or 'all ok'}"


def _rank_cells(rank: RankStatus) -> tuple[str, ...]:
    heartbeat = rank.heartbeat
    place = f"{heartbeat.epoch}:{heartbeat.step}" if heartbeat.epoch else "-"
    own = waits = "-"
    if heartbeat.step_seconds > 0:
        own, waits = format_step_time(heartbeat.own_seconds), f"{100 * rank.wait_fraction:.0f} %"
    return str(heartbeat.rank), heartbeat.host, place, own, waits, f"{format_duration(rank.age)} ago", rank.description


def _summarize_others(ranks: Sequence[RankStatus]) -> str:
    paces = sorted(rank.heartbeat.own_seconds for rank in ranks if rank.heartbeat.step_seconds > 0)
    own = f": {format_step_time(paces[0])} to {format_step_time(paces[-1])} of their own per step" if paces else ""
    wrong = sum(bool(rank.trouble) for rank in ranks)
    return f"and {len(ranks)} others{own}" + (f"; {wrong} of them in trouble" if wrong else "")


def _render_log(state: WatchState, width: int, space: int) -> list[Text]:
    if space < 2 or not state.log:
        return []
    return [_draw_rule("log", width), *(Text(line) for line in state.log[1 - space :])]


def _draw_rule(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─"), "dim")
