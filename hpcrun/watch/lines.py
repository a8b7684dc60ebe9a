"""What changes from one picture to the next, in lines for a log or a pipe."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hpcrun.jobs.rows import speed
from hpcrun.jobs.states import plain
from hpcrun.watch.course import count, positive
from hpcrun.watch.words import figures, span, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hpcrun.watch.picture import Picture
    from hpcrun.watch.ranks import Seen

STEP_SECONDS = 60.0
"""So often a long epoch is told of."""

MOST_RANKS = 8
"""So many ranks are told of at once; the others are counted."""


class Lines:
    """Tells each thing once."""

    def __init__(self) -> None:
        self._state: tuple[str | None, ...] = ()
        self._epochs = 0
        self._spoken = time.monotonic()
        self._told: dict[int, str] = {}
        self._slow: set[int] = set()
        self._warned: set[str] = set()

    def new(self, picture: Picture) -> list[str]:
        """Return what is new in a picture.

        Args:
            picture: It.
        """
        found = [*self._of_state(picture), *self._of_training(picture), *self._of_ranks(picture)]
        for kind, warning in picture.warnings.items():
            if kind not in self._warned:
                self._warned.add(kind)
                found.append(f"WARNING: {warning}")
        return found

    def _of_state(self, picture: Picture) -> Iterator[str]:
        row, why = picture.row, picture.why
        if row is None or picture.over:  # how it ended is told behind all this
            return
        reason = why.diagnosis.summary if why else row.reason
        state = (row.job_id, row.state, row.nodes, reason)
        if state == self._state:
            return
        self._state = state
        where = f" on {row.nodes}" if row.nodes else ""
        because = f": {reason}" if reason else ""
        yield f"job {row.job_id} ({picture.run.name}) is {plain(row.state)}{where}{because}"
        for seen in why.diagnosis.evidence[1:] if why else ():
            yield f"  {seen.source}: {seen.line}"

    def _of_training(self, picture: Picture) -> Iterator[str]:
        epochs, course, now = picture.epochs, picture.course, time.monotonic()
        if len(epochs) < self._epochs:  # the job was started again
            self._epochs = 0
        new = epochs[self._epochs :] if self._epochs else epochs[-1:]
        for epoch in new:
            number = count(epoch.fit)
            place = (
                f"fit {number + 1}, " * bool(number)
                + f"epoch {epoch.epoch}"
                + (f"/{epoch.epochs}" if epoch.epochs else "")
            )
            rate = positive(epoch.images_per_second)
            shown = figures(epoch.figures)
            yield "  ".join(filter(None, [place, shown, speed(rate) if rate else ""]))
        if new:
            self._epochs, self._spoken = len(epochs), now
        elif picture.runs and course.step and now - self._spoken >= STEP_SECONDS:
            self._spoken = now
            left = f"{span(course.seconds_left)} left" if course.seconds_left else ""
            words = [course.place, figures(course.figures)]
            words += [speed(course.images_per_second)] if course.images_per_second else []
            yield "  ".join(filter(None, [*words, left]))

    def _of_ranks(self, picture: Picture) -> Iterator[str]:
        changed = [rank for rank in picture.ranks if rank.trouble != self._told.get(rank.beat.rank, "")]
        found = [line for rank in changed if (line := self._of_rank(rank))]
        yield from found[:MOST_RANKS]
        if len(found) > MOST_RANKS:
            yield f"  and {len(found) - MOST_RANKS} more ranks"

    def _of_rank(self, rank: Seen) -> str:
        """Return what has become of a rank; that it is slow is told once, because it may come and go."""
        number, trouble = rank.beat.rank, rank.trouble
        before, self._told[number] = self._told.get(number, ""), trouble
        who = f"rank {number} on {rank.beat.host}"
        if trouble == "slow":
            if number in self._slow:
                return ""
            self._slow.add(number)
            own = step(rank.beat.own_seconds)
            return f"WARNING: {who} is {rank.says} of their own a step, it takes {own}"
        if trouble == "waiting":  # all of them do: that is one warning
            return ""
        if trouble:
            heard = f"; it was last heard of {span(rank.age)} ago" if trouble == "silent" else ""
            return f"WARNING: {who} is {rank.says}{heard}"
        return f"{who} is no longer {before}" if before not in {"slow", "waiting"} else ""
