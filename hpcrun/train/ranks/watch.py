"""Ranks that wait for one that does not come are told which one it is and where, instead of waiting for ever.

Every rank marks the collective that it waits in. A thread looks at that mark every few seconds; what it finds odd it
asks the other ranks about, whose threads answer also while their scripts are stuck.
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import TYPE_CHECKING

from hpcrun.train.ranks import failure
from hpcrun.train.ranks.peers import SLOWEST
from hpcrun.train.ranks.position import position, ranks_in_words
from hpcrun.train.ranks.waiting import innermost
from hpcrun.train.settings import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.train.kinds import Json
    from hpcrun.train.ranks.peers import Peer, Peers
    from hpcrun.train.ranks.waiting import waiting

SECONDS = 600.0  # HPCRUN_STALL_SECONDS: after so many in one collective the job ends
TICK = 5.0  # s, or a 20th of the limit
# In ticks: how long a rank waits before it looks whether the next one lives, and before two ranks that wait in two
# collectives are no coincidence (a network may be away for some seconds).
LOOK, CROSSED = 2, 12
HINT = (
    "HINT: every rank must make the same calls: fit, evaluate, predict or barrier() under `if is_chief():`, "
    "or another number of batches on one rank, leaves the others waiting"
)


class Watch:
    """One rank's look-out.

    Args:
        peers: How to ask the others.
        limit: Seconds in one collective after which the job ends; 0 for no limit.
    """

    def __init__(self, peers: Peers, limit: float) -> None:
        self.peers = peers
        self.limit = limit
        self.tick = min(TICK, limit / 20) if limit else TICK
        self.ticks = 0  # that this rank has been waiting in one collective; time in which it was stopped has none
        self._seen: waiting | None = None
        self._refused = 0
        self._met = False
        self._closing = threading.Event()

    def answer(self, question: Json) -> Json:
        """Answer another rank: who failed first, or where this one is."""
        if "failed" in question:
            return failure.first(question["failed"], question["line"], question["text"])
        return self.where()

    def where(self) -> Json:
        """Return what this rank waits in ("what" is None: in nothing), for how many ticks, and where its script is."""
        now = innermost()
        ticks = self.ticks if now is self._seen else 0
        return {"what": now and now.what, "waits": str(now), "ticks": ticks, "at": position(deep=now is None)}

    def look(self) -> None:
        """Look out until `close`, and end the job where it stalls."""
        # On another host only a port that answered once can be known to be closed: a firewall refuses too.
        self._met = self.peers.near(self._next) or not isinstance(self._ask_next(), OSError)
        while not self._closing.wait(self.tick):
            now = innermost()
            if now is None or now is not self._seen:
                self._seen, self.ticks, self._refused = now, 0, 0
                continue
            self.ticks += 1
            if self.limit and self.ticks * self.tick >= self.limit:
                self.end(f"no progress for {self.limit:g} s", ". HPCRUN_STALL_SECONDS sets the limit (0: none)")
            elif self.ticks >= LOOK:
                asked = time.monotonic()
                self._look_at_next()
                # A rank that does not answer takes seconds; not more of them than that: this one may be stopped, too.
                self.ticks += int(min(time.monotonic() - asked, SLOWEST) / self.tick)

    def close(self) -> None:
        """Stop: this rank's script has ended."""
        self._closing.set()
        self.peers.close()

    def end(self, why: str, hint: str = "") -> None:
        """Ask all ranks where they are, print it, and end the job."""
        others = [r for r in range(len(self.peers.all)) if r != self.peers.rank]
        answers = self.peers.ask_all(others, "where") | {self.peers.rank: self.where()}
        text = "\n  ".join([f"error: {why}", *self._lines(answers)])
        failure.report(f"{text}\n{HINT}{hint}", f"error: {why}", 1, arbiters=range(self.peers.rank + 1))

    @property
    def _next(self) -> int:
        return (self.peers.rank + 1) % len(self.peers.all)

    def _ask_next(self) -> Json | OSError:
        return self.peers.ask_all([self._next], "where")[self._next]

    def _look_at_next(self) -> None:
        answer, mine = self._ask_next(), self._seen
        if mine is None or innermost() is not mine:
            return
        if isinstance(answer, OSError):
            self._refused = self._refused + 1 if self._met and isinstance(answer, ConnectionRefusedError) else 0
            if self._refused == 2:
                self.end(f"rank {self._next} has ended, and others wait for it")
            return
        self._met, self._refused = True, 0
        crossed = answer["what"] not in {None, mine.what}  # another number of the same may be a network that is away
        if crossed and min(answer["ticks"], self.ticks) >= CROSSED:
            self.end("the ranks wait in different collectives")

    def _lines(self, answers: dict[int, Json | OSError]) -> Iterable[str]:
        alike: dict[str, list[int]] = {}
        for rank, answer in sorted(answers.items()):
            alike.setdefault(_told(answer), []).append(rank)
        for told, ranks in alike.items():
            peer = self.peers.all[ranks[0]]
            alone = "" if len(ranks) > 1 else f" (host {peer.host}, pid {peer.pid})"
            yield f"{ranks_in_words(ranks)}{alone}: {told}"


def _told(answer: Json | OSError) -> str:
    if isinstance(answer, ConnectionRefusedError):
        return "has ended"
    if isinstance(answer, TimeoutError):
        return "does not answer: its process is stopped or busy outside of Python, or its host is out of reach"
    if isinstance(answer, OSError):
        return f"cannot be asked: {answer}"
    if answer["what"] is None:
        return f"did not come, is at {answer['at']}"
    return f"waiting in {answer['waits']}, at {answer['at']}"


def start(peers: Peers, rank: int, everybody: Sequence[Peer], limit: float) -> None:
    """Answer the other ranks and look out, in two threads, until this process ends.

    Args:
        peers: This rank's.
        rank: This rank.
        everybody: All ranks' `Peers.mine`, in rank order.
        limit: Seconds in one collective after which the job ends; 0 for no limit.
    """
    watch = Watch(peers, limit)
    peers.serve(rank, everybody, watch.answer)
    failure.connect(peers)
    atexit.register(watch.close)
    threading.Thread(target=watch.look, name="hpcrun looks out", daemon=True).start()


def stall_seconds() -> float:
    """Return the user's limit, HPCRUN_STALL_SECONDS.

    Raises:
        HpcrunError: It is no number of seconds.
    """
    return number("HPCRUN_STALL_SECONDS", SECONDS, "seconds", "600, or 0 for no limit")
