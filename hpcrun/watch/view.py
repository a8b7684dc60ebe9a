"""A job's state as lines that fit the size of a terminal."""

from __future__ import annotations

import time
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.text import Text

from hpcrun.errors import pluralize, sanitize
from hpcrun.jobs.progress_text import format_elapsed, format_rate
from hpcrun.watch.chart import draw_chart
from hpcrun.watch.format import format_duration, format_metric, format_metrics, format_step_time
from hpcrun.watch.rank_monitor import sort_by_trouble
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
MAX_DAYS = 1000  # if the training takes some more days, no end time is shown


class WatchView:
    """A rich renderable of a job's state, as large as the terminal.

    Args:
        state: The job's state.
        full_screen: Whether to fill the screen; otherwise only as many lines as needed are printed.
    """

    def __init__(self, state: WatchState, *, full_screen: bool) -> None:
        self.state, self.full_screen = state, full_screen

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the display."""
        height = options.max_height if self.full_screen else MAX_FINAL_LINES
        lines = render_lines(self.state, options.max_width, height)
        for line in lines[:height]:
            line.no_wrap, line.overflow = True, "ellipsis"
            if (escaped := sanitize(line.plain)) != line.plain:  # escape control characters of logs, records and names
                line.plain = escaped
            yield line


def render_lines(state: WatchState, width: int, height: int) -> list[Text]:
    """Return the lines of the display; a line may be wider than the terminal.

    Args:
        state: The job's state.
        width: The number of columns.
        height: The maximum number of lines.
    """
    top_lines = [*_render_header(state, width), *_render_pending_reason(state, width), *_render_training(state, width)]
    for warning in state.warnings.values():
        top_lines += _wrap_text(f"WARNING: {warning}", width, "bold yellow")
    lines_left = height - len(top_lines)
    chart_height = 8 if lines_left >= 30 else 4 if lines_left >= 17 else 2 if lines_left >= 11 else 0
    charts = _render_charts(state, width, chart_height) if chart_height else []
    lines_left -= len(charts)
    ranks = _render_ranks(
        state, width, max(lines_left - MIN_LOG_LINES - 1, 0) if lines_left < 16 else lines_left * 2 // 3
    )
    lines_left -= len(ranks)
    if state.finished:  # the log explains a failure; the caller reports success
        lines_left = 0 if state.row and state.row.state == "COMPLETED" else min(lines_left, FINAL_LOG_LINES)
    return [*top_lines, *charts, *ranks, *_render_log(state, width, lines_left)]


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
    status_text = Text(row.plain_state, f"bold {colour}")
    if row.as_of:
        status_text.append(f" (as of {row.as_of[11:19]}): {row.reason}")
    elif row.reason and row.state != "COMPLETED" and not state.explanation:
        status_text.append(f": {row.reason}")
    if row.nodes:
        status_text.append(f" on {row.nodes}")
    elif row.nodes_asked:
        status_text.append(f", {pluralize(row.nodes_asked, 'node')}")
    if row.ranks:
        status_text.append(f", {pluralize(row.ranks, 'rank')}")
    if state.elapsed is not None and not state.explanation:
        status_text.append(f", {format_elapsed(state.elapsed)}" + (f" of {row.limit}" if row.limit else ""))
    elif row.limit:
        status_text.append(f", limit {row.limit}")
    if (restarts := row.starts - 1) > 0:
        status_text.append(f", started again {pluralize(restarts, 'time')}", "yellow")
    return [title, status_text]


def _render_pending_reason(state: WatchState, width: int) -> list[Text]:
    if not state.explanation:
        return []
    diagnosis = state.explanation.diagnosis
    lines = _wrap_text(f"why: {diagnosis.summary}", width)
    for evidence in diagnosis.evidence:
        lines += _wrap_text(f"     {evidence.source}: {evidence.line}", width, "dim")
    return lines + (_wrap_text(f"what to do: {diagnosis.fix}", width) if diagnosis.fix else [])


def _wrap_text(text: str, width: int, style: str = "") -> list[Text]:
    return [Text(line, style) for line in wrap(text, width, subsequent_indent="     ")]


def _render_training(state: WatchState, width: int) -> list[Text]:
    progress = state.progress
    if state.start:
        return [Text(format_start(state.start))]
    if not progress.epoch:
        return []
    lines = []
    position_text = progress.position
    if progress.images_per_second:
        position_text += f", {format_rate(progress.images_per_second)}"
    if state.is_running and progress.step_seconds:
        position_text += f", {format_step_time(progress.step_seconds)} per step"
    if progress.done is not None:
        percent = f" {100 * progress.done:5.1f} %"
        bar_width = max(width - len(percent), 1)
        done_width = int(bar_width * progress.done)
        lines.append(Text.assemble(("━" * done_width, "green"), ("─" * (bar_width - done_width), "dim"), percent))
        if state.is_running and progress.seconds_left and progress.phase != "trained":
            position_text += (
                f", {format_duration(progress.seconds_left)} left{_format_finish_time(progress.seconds_left)}"
            )
    lines.append(Text(position_text))
    if state.is_running and progress.sent_bytes:
        share, megabytes = 100 * progress.communication_share, progress.sent_bytes / 1e6
        what = f"({progress.codec})" if progress.codec not in ("", "none") else "of gradients"
        traffic = f"each rank sends {megabytes:.3g} MB {what} per step"
        lines.append(Text(f"{traffic}, communication takes {share:.0f} %"))
    if progress.metrics:
        lines.append(Text(format_metrics(progress.metrics), "cyan"))
    return lines


def _format_finish_time(seconds_left: float) -> str:
    if seconds_left > MAX_DAYS * 86400:
        return ""
    time_format = "%a %H:%M" if seconds_left < 6 * 86400 else "%Y-%m-%d"
    return time.strftime(f" (until {time_format})", time.localtime(time.time() + seconds_left))


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
    chart_width = (width - CHART_GAP * (len(curves) - 1)) // len(curves)
    lines = [Text() for _ in range(rows + 1)]
    for index, (name, finite_values, values, floor, colour) in enumerate(curves):
        heading = f"{name} {format_metric(finite_values[0])} → {format_metric(finite_values[-1])}"
        value_range = f", {format_metric(min(finite_values))} to {format_metric(max(finite_values))}"
        heading += value_range if len(heading + value_range) <= chart_width else ""
        for line, text in zip(lines, [heading, *draw_chart(values, chart_width, rows, floor=floor)], strict=True):
            line.append((" " * CHART_GAP if index else "") + text[:chart_width].ljust(chart_width), colour)
    return lines


def _render_ranks(state: WatchState, width: int, max_lines: int) -> list[Text]:
    """Return a table of ranks; if not all ranks fit, ranks with problems come first, then the slowest ranks."""
    ranks = state.ranks
    if not ranks:
        return []
    heading = _draw_rule(_summarize_ranks(state), width)
    if max_lines < 3:
        return [heading]
    shown_ranks = list(ranks) if len(ranks) <= max_lines - 2 else sort_by_trouble(ranks)[: max_lines - 3]
    cells = [("rank", "host", "step", "own", "waits", "heard", ""), *map(_rank_cells, shown_ranks)]
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    lines = [heading]
    for row_index, row in enumerate(cells):
        line = "  ".join(
            text.rjust(cell_width) if column not in {1, 6} else text.ljust(cell_width)
            for column, (text, cell_width) in enumerate(zip(row, [*widths, 0], strict=True))
        )
        lines.append(
            Text(line.rstrip(), "dim" if row_index == 0 else TROUBLE_STYLES.get(shown_ranks[row_index - 1].trouble, ""))
        )
    if len(shown_ranks) < len(ranks):
        lines.append(Text(_summarize_others([rank for rank in ranks if rank not in shown_ranks]), "dim"))
    return lines


def _summarize_ranks(state: WatchState) -> str:
    ranks, rank_count = state.ranks, state.row.ranks if state.row else None
    rank_text = (
        f"{len(ranks)} of {rank_count} ranks"
        if rank_count and rank_count > len(ranks)
        else pluralize(len(ranks), "rank")
    )
    hosts = len({rank.heartbeat.host for rank in ranks})
    counts = {name: sum(rank.trouble == name for rank in ranks) for name in TROUBLE_STYLES}
    trouble_counts = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{rank_text} on {pluralize(hosts, 'host')}: {trouble_counts or 'all ok'}"


def _rank_cells(rank: RankStatus) -> tuple[str, ...]:
    heartbeat = rank.heartbeat
    position = f"{heartbeat.epoch}:{heartbeat.step}" if heartbeat.epoch else "-"
    own_step_time = wait_text = "-"
    if heartbeat.own_seconds > 0:
        own_step_time, wait_text = format_step_time(heartbeat.own_seconds), f"{100 * heartbeat.wait_fraction:.0f} %"
    return (
        str(heartbeat.rank),
        heartbeat.host,
        position,
        own_step_time,
        wait_text,
        f"{format_duration(rank.age)} ago",
        rank.description,
    )


def _summarize_others(ranks: Sequence[RankStatus]) -> str:
    own_step_times = sorted(rank.heartbeat.own_seconds for rank in ranks if rank.heartbeat.own_seconds > 0)
    own_text = (
        f": {format_step_time(own_step_times[0])} to {format_step_time(own_step_times[-1])} per step without waiting"
        if own_step_times
        else ""
    )
    trouble_count = sum(bool(rank.trouble) for rank in ranks)
    return f"and {len(ranks)} others{own_text}" + (f"; {trouble_count} of them in trouble" if trouble_count else "")


def _render_log(state: WatchState, width: int, max_lines: int) -> list[Text]:
    if max_lines < 2 or not state.log:
        return []
    return [_draw_rule("log", width), *(Text(line) for line in state.log[1 - max_lines :])]


def _draw_rule(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─"), "dim")
