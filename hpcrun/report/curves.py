"""Curves of ``metrics.jsonl`` as pictures (SVG) that take their colours from the page they stand in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpcrun.errors import HpcrunError
from hpcrun.jobs.figures import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Point = tuple[float, float]

COLOURS = 8
"""So many colours has the page: its CSS variables ``--curve-0`` and so on."""

MOST_POINTS = 300
"""Of a longer curve, points are left out evenly."""

_SERIES = re.compile(r"series serie-(\d+)")
_NO_CURVES = {"fit", "epoch", "epochs", "seconds", "time", "rank"}
_TITLES = {"images_per_second": "images per second", "learning_rate": "learning rate"}


@dataclass(frozen=True)
class Curve:
    """One line of a picture.

    Attributes:
        name: What its points are called.
        points: Its points, epoch and value.
        colour: The number of its colour.
        dashed: Whether it was measured on other data than was trained on.
    """

    name: str
    points: tuple[Point, ...]
    colour: int
    dashed: bool


@dataclass(frozen=True)
class Picture:
    """A picture of one quantity.

    Attributes:
        title: The quantity.
        svg: The picture's text, an ``<svg>`` element.
        dashed: Whether some curve is dashed.
    """

    title: str
    svg: str
    dashed: bool


def pictures(metrics: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Picture]:
    """Return a picture of each quantity that runs have measured, with all runs' curves.

    Args:
        metrics: The lines of each run's ``metrics.jsonl``, by the run's name.

    Raises:
        HpcrunError: There are curves, and pygal, which draws them, is not installed.
    """
    found: dict[str, list[Curve]] = {}
    for number, name, lines in _fits(metrics):
        for key in dict.fromkeys(key for line in lines for key in line if key not in _NO_CURVES):
            points = _points(lines, key)
            dashed = key.startswith("val_")
            if points:
                quantity = key.removeprefix("val_")
                whose = f"{name} {'validation' if dashed else ''}".strip()
                found.setdefault(quantity, []).append(Curve(whose, points, number % COLOURS, dashed))
    return [
        Picture(_TITLES.get(key, key.replace("_", " ")), _drawn(found[key], key), any(one.dashed for one in found[key]))
        for key in sorted(found, key=lambda key: (key in _TITLES, key != "loss", key))
    ]


def _fits(metrics: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[int, str, list[Mapping[str, Any]]]]:
    """Yield of each ``fit`` of each run the run's number, what its curves are called, and its lines."""
    for number, (run, lines) in enumerate(metrics.items()):
        fits: dict[int, list[Mapping[str, Any]]] = {}
        for line in lines:
            fit = line.get("fit")
            fits.setdefault(fit if isinstance(fit, int) else 0, []).append(line)
        for fit, own in fits.items():
            yield number, f"{run}, fit {fit + 1}" if fit else run, own


def _points(lines: Sequence[Mapping[str, Any]], key: str) -> tuple[Point, ...]:
    points = [
        (float(line.get("epoch") or number), float(line[key]))
        for number, line in enumerate(lines, 1)
        if _finite(line.get(key)) and _finite(line.get("epoch") or number)
    ]
    step = -(-len(points) // MOST_POINTS) or 1
    return tuple(points[::-1][::step][::-1])  # the last one stays


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e100  # also: not NaN


def _drawn(curves: Sequence[Curve], key: str) -> str:
    try:
        import pygal
        from pygal.style import Style
    except ImportError:
        hint = "pip install 'hpcrun-slurm[report]'"
        raise HpcrunError("hpcrun report draws with pygal, which is not installed", hint=hint) from None
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
        x_labels=_steps(min(epochs), max(epochs)),
        xrange=(min(epochs), max(epochs)) if min(epochs) < max(epochs) else (min(epochs) - 1, max(epochs) + 1),
        include_x_axis=key == "images_per_second",
        value_formatter=shown,
        x_value_formatter=lambda epoch: f"{epoch:g}",
        disable_xml_declaration=True,
        no_data_text="",
    )
    for curve in curves:
        style = {"width": 2, "dasharray": "5,4"} if curve.dashed else {"width": 2}
        chart.add(curve.name, list(curve.points), stroke_style=style, show_dots=not curve.dashed or len(values) < 60)
    chart.add_xml_filter(_telling(curves))
    return str(chart.render(is_unicode=True))


def _steps(first: float, last: float) -> list[float]:
    """Return a few epochs for the axis, whole ones as far as possible."""
    wide = max(last - first, 1)
    step = next(step for power in range(9) for n in (1, 2, 5) if wide / (step := n * 10**power) <= 6)
    return [number * step for number in range(int(first // step), int(last // step) + 1) if number * step >= first]


def _telling(curves: Sequence[Curve]) -> Callable[[Any], Any]:
    """Return what takes out of a picture all that a browser would run, and lets it tell each point's value instead."""

    def told(root: Any) -> Any:
        for node in list(root.iter()):
            for child in list(node):
                if _kind(child) in {"script", "title", ""}:
                    node.remove(child)
        for group in root.iter():
            if _kind(group) == "g" and (series := _SERIES.match(group.get("class", ""))):
                for dot in group:
                    _tell(dot, curves[int(series[1])].name)
        return root

    return told


def _tell(dot: Any, name: str) -> None:
    notes = [child for child in dot if _kind(child) == "desc"]  # pygal's own script would read them
    for note in notes:
        if note.get("class") == "value":
            title = dot.makeelement(note.tag.replace("desc", "title"), {})
            title.text = f"{name}, epoch {note.text}"
            dot.insert(0, title)
        dot.remove(note)


def _kind(node: Any) -> str:
    """Return an element's name without its namespace; comments have none."""
    return node.tag.rpartition("}")[2] if isinstance(node.tag, str) else ""
