"""Plots of ``metrics.jsonl`` as SVG, with colours defined by the surrounding page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.frozen import frozen
from hpcrun.jobs.result_format import format_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeGuard

Point = tuple[float, float]

COLOUR_COUNT = 8
"""Number of curve colours of the page: its CSS variables ``--curve-0`` and so on."""

MAX_POINTS = 300
"""Maximum number of points per curve; for longer curves, only every nth point is drawn."""

_SERIES_ID = re.compile(r"series serie-(\d+)")
_UNPLOTTED_KEYS = {"fit", "epoch", "epochs", "seconds", "time", "rank"}
_TITLES = {"images_per_second": "images per second", "learning_rate": "learning rate"}


@frozen
class Curve:
    """One curve of a plot.

    Attributes:
        name: The label of the curve's points.
        points: Pairs of epoch and value.
        colour: The index of the curve's colour.
        dashed: Whether the curve shows validation data and is dashed.
    """

    name: str
    points: tuple[Point, ...]
    colour: int
    dashed: bool


@frozen
class Plot:
    """A plot of one metric.

    Attributes:
        title: The name of the metric.
        svg: The ``<svg>`` element as text.
        dashed: Whether the plot has dashed curves.
    """

    title: str
    svg: str
    dashed: bool


def draw_plots(metrics: Mapping[str, Sequence[Mapping[str, object]]]) -> list[Plot]:
    """Draw a plot of each metric, with the curves of all runs.

    Args:
        metrics: The lines of each run's ``metrics.jsonl``, by the run's name.

    Raises:
        HpcrunError: There are curves to draw, and pygal is not installed.
    """
    curves: dict[str, list[Curve]] = {}
    for run_index, name, lines in _group_by_fit(metrics):
        for key in dict.fromkeys(key for line in lines for key in line if key not in _UNPLOTTED_KEYS):
            points = _find_points(lines, key)
            is_dashed = key.startswith("val_")
            if points:
                metric = key.removeprefix("val_")
                label = f"{name} {'validation' if is_dashed else ''}".strip()
                curves.setdefault(metric, []).append(Curve(label, points, run_index % COLOUR_COUNT, is_dashed))
    return [
        Plot(
            _TITLES.get(key, key.replace("_", " ")),
            _draw_svg(curves[key], key),
            any(curve.dashed for curve in curves[key]),
        )
        for key in sorted(curves, key=lambda key: (key in _TITLES, key != "loss", key))
    ]


def _group_by_fit(
    metrics: Mapping[str, Sequence[Mapping[str, object]]],
) -> Iterator[tuple[int, str, list[Mapping[str, object]]]]:
    """Yield the run's index, the curve label and the metric lines of each ``fit`` call of each run."""
    for run_index, (run, lines) in enumerate(metrics.items()):
        lines_by_fit: dict[int, list[Mapping[str, object]]] = {}
        for line in lines:
            fit = line.get("fit")
            lines_by_fit.setdefault(fit if isinstance(fit, int) else 0, []).append(line)
        for fit, fit_lines in lines_by_fit.items():
            yield run_index, f"{run}, fit {fit + 1}" if fit else run, fit_lines


def _find_points(lines: Sequence[Mapping[str, object]], key: str) -> tuple[Point, ...]:
    pairs = [(line.get("epoch") or number, line.get(key)) for number, line in enumerate(lines, 1)]
    points = [(float(epoch), float(value)) for epoch, value in pairs if _is_finite(epoch) and _is_finite(value)]
    stride = -(-len(points) // MAX_POINTS) or 1
    return tuple(points[::-1][::stride][::-1])  # keep the last point


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < 1e100  # false for NaN, too


def _draw_svg(curves: Sequence[Curve], key: str) -> str:
    try:
        import pygal
        from pygal.style import Style
    except ImportError:
        hint = "pip install 'hpcrun-slurm[report]'"
        raise HpcrunError("hpcrun report needs pygal to draw curves, and pygal is not installed", hint=hint) from None
    values = [value for curve in curves for _, value in curve.points]
    epochs = [epoch for curve in curves for epoch, _ in curve.points]
    chart = pygal.XY(
        style=Style(
            background="transparent",
            plot_background="transparent",
            foreground="var(--soft)",
            foreground_strong="var(--soft)",
            foreground_subtle="var(--line)",
            guide_stroke_color="var(--line)",
            major_guide_stroke_color="var(--line)",
            guide_stroke_dasharray="none",
            major_guide_stroke_dasharray="none",
            font_family="inherit",
            stroke_width="2",
            stroke_opacity="1",
            stroke_width_hover="2",
            label_font_size=12,
            major_label_font_size=12,
            colors=tuple(f"var(--curve-{curve.colour})" for curve in curves),
            value_colors=("currentColor",) * len(curves),
        ),
        js=(),
        width=460,
        height=260,
        margin=8,
        show_legend=False,
        show_x_guides=False,
        dots_size=2 if max(len(curve.points) for curve in curves) > 30 else 3,
        x_labels=_choose_ticks(min(epochs), max(epochs)),
        xrange=(min(epochs), max(epochs)) if min(epochs) < max(epochs) else (min(epochs) - 1, max(epochs) + 1),
        include_x_axis=key == "images_per_second",
        value_formatter=format_value,
        x_value_formatter=lambda epoch: f"{epoch:g}",
        disable_xml_declaration=True,
        no_data_text="",
    )
    for curve in curves:
        style = {"width": 2, "dasharray": "5,4"} if curve.dashed else {"width": 2}
        chart.add(curve.name, list(curve.points), stroke_style=style, show_dots=not curve.dashed or len(values) < 60)
    chart.add_xml_filter(_make_tooltip_filter(curves))
    return str(chart.render(is_unicode=True))


def _choose_ticks(first_epoch: float, last_epoch: float) -> list[float]:
    """Return a few evenly spaced epochs as ticks of the x axis."""
    epoch_count = max(last_epoch - first_epoch, 1)
    interval = next(interval for power in range(9) for n in (1, 2, 5) if epoch_count / (interval := n * 10**power) <= 6)
    return [
        index * interval
        for index in range(int(first_epoch // interval), int(last_epoch // interval) + 1)
        if index * interval >= first_epoch
    ]


def _make_tooltip_filter(curves: Sequence[Curve]) -> Callable[[Any], Any]:
    """Return a filter that removes scripts from an SVG, and adds a tooltip with the value to each point."""

    def add_tooltips(root: Any) -> Any:
        for node in list(root.iter()):
            for child in list(node):
                if _element_name(child) in {"script", "title", ""}:
                    node.remove(child)
        for group in root.iter():
            if _element_name(group) == "g" and (series := _SERIES_ID.match(group.get("class", ""))):
                for dot in group:
                    _add_tooltip(dot, curves[int(series[1])].name)
        return root

    return add_tooltips


def _add_tooltip(dot: Any, name: str) -> None:
    # these elements belong to pygal's script, which is removed
    descriptions = [child for child in dot if _element_name(child) == "desc"]
    for description in descriptions:
        if description.get("class") == "value":
            title = dot.makeelement(description.tag.replace("desc", "title"), {})
            title.text = f"{name}, epoch {description.text}"
            dot.insert(0, title)
        dot.remove(description)


def _element_name(node: Any) -> str:
    """Return an element's name without its namespace; empty for a comment."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
