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
from hpcrun.train.ranks.peers import MAX_QUERY_SECONDS
from hpcrun.train.ranks.script_position import format_ranks, script_position
from hpcrun.train.ranks.waiting import current_wait
from hpcrun.train.settings import read_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.train.ranks.peers import Peer, Peers
    from hpcrun.train.ranks.waiting import waiting
    from hpcrun.train.types import Json

DEFAULT_SECONDS = 600.0  # HPCRUN_STALL_SECONDS: after so many in one collective the job ends
TICK_SECONDS = 5.0  # s, or a 20th of the limit
# In ticks: how long a rank waits before it looks whether the next one lives, and before two ranks that wait in two
# collectives are no coincidence (a network may be away for some seconds).
CHECK_TICKS, MISMATCH_TICKS = 2, 12
HINT = (
    "HINT: every rank must make the same calls: fit, evaluate, predict or barrier() under `if is_chief():`, "
    "or another number of batches on one rank, leaves the others waiting"
)


class StallDetector:
    """One rank's look-out.

    Args:
        peers: How to ask the others.
        limit: Seconds in one collective after which the job ends; 0 for no limit.
    """

    def __init__(self, peers: Peers, limit: float) -> None:
        self.peers = peers
        self.limit = limit
        self.tick = min(TICK_SECONDS, limit / 20) if limit else TICK_SECONDS
        self.ticks = 0  # that this rank has been waiting in one collective; time in which it was stopped has none
        self._last_wait: waiting | None = None
        self._refused = 0
        self._next_answered = False
        self._closing = threading.Event()

    def answer(self, question: Json) -> Json:
        """Answer another rank: who failed first, or where this one is."""
        if "failed" in question:
            return failure.first_failure(question["failed"], question["line"], question["text"])
        return self.status()

    def status(self) -> Json:
        """Return what this rank waits in ("what" is None: in nothing), for how many ticks, and where its script is."""
        now = current_wait()
        ticks = self.ticks if now is self._last_wait else 0
        return {"what": now and now.what, "waits": str(now), "ticks": ticks, "at": script_position(deep=now is None)}

    def run(self) -> None:
        """Look out until `close`, and end the job where it stalls."""
        # On another host only a port that answered once can be known to be closed: a firewall refuses too.
        self._next_answered = self.peers.is_on_this_host(self._next) or not isinstance(self._query_next(), OSError)
        while not self._closing.wait(self.tick):
            now = current_wait()
            if now is None or now is not self._last_wait:
                self._last_wait, self.ticks, self._refused = now, 0, 0
                continue
            self.ticks += 1
            if self.limit and self.ticks * self.tick >= self.limit:
                self.abort(f"no progress for {self.limit:g} s", ". HPCRUN_STALL_SECONDS sets the limit (0: none)")
            elif self.ticks >= CHECK_TICKS:
                query_start = time.monotonic()
                self._check_next()
                # A rank that does not answer takes seconds; not more of them than that: this one may be stopped, too.
                self.ticks += int(min(time.monotonic() - query_start, MAX_QUERY_SECONDS) / self.tick)

    def close(self) -> None:
        """Stop: this rank's script has ended."""
        self._closing.set()
        self.peers.close()

    def abort(self, why: str, hint: str = "") -> None:
        """Ask all ranks where they are, print it, and end the job."""
        others = [r for r in range(len(self.peers.all)) if r != self.peers.rank]
        answers = self.peers.query_all(others, "where") | {self.peers.rank: self.status()}
        text = "\n  ".join([f"error: {why}", *self._lines(answers)])
        failure.report_and_abort(f"{text}\n{HINT}{hint}", f"error: {why}", 1, arbiters=range(self.peers.rank + 1))

    @property
    def _next(self) -> int:
        return (self.peers.rank + 1) % len(self.peers.all)

    def _query_next(self) -> Json | OSError:
        return self.peers.query_all([self._next], "where")[self._next]

    def _check_next(self) -> None:
        answer, wait = self._query_next(), self._last_wait
        if wait is None or current_wait() is not wait:
            return
        if isinstance(answer, OSError):
            self._refused = (
                self._refused + 1 if self._next_answered and isinstance(answer, ConnectionRefusedError) else 0
            )
            if self._refused == 2:
                self.abort(f"rank {self._next} has ended, and others wait for it")
            return
        self._next_answered, self._refused = True, 0
        mismatch = answer["what"] not in {None, wait.what}  # another number of the same may be a network that is away
        if mismatch and min(answer["ticks"], self.ticks) >= MISMATCH_TICKS:
            self.abort("the ranks wait in different collectives")

    def _lines(self, answers: dict[int, Json | OSError]) -> Iterable[str]:
        alike: dict[str, list[int]] = {}
        for rank, answer in sorted(answers.items()):
            alike.setdefault(_describe(answer), []).append(rank)
        for description, ranks in alike.items():
            peer = self.peers.all[ranks[0]]
            process = "" if len(ranks) > 1 else f" (host {peer.host}, pid {peer.pid})"
            yield f"{format_ranks(ranks)}{process}: {description}"


def _describe(answer: Json | OSError) -> str:
    if isinstance(answer, ConnectionRefusedError):
        return "has ended"
    if isinstance(answer, TimeoutError):
        return "does not answer: its process is stopped or busy outside of Python, or its host is out of reach"
    if isinstance(answer, OSError):
        return f"cannot be asked: {answer}"
    if answer["what"] is None:
        return f"did not come, is at {answer['at']}"
    return f"waiting in {answer['waits']}, at {answer['at']}"


def start_detector(peers: Peers, rank: int, all_peers: Sequence[Peer], limit: float) -> None:
    """Answer the other ranks and look out, in two threads, until this process ends.

    Args:
        peers: This rank's.
        rank: This rank.
        all_peers: All ranks' `Peers.mine`, in rank order.
        limit: Seconds in one collective after which the job ends; 0 for no limit.
    """
    detector = StallDetector(peers, limit)
    peers.serve(rank, all_peers, detector.answer)
    failure.connect_peers(peers)
    atexit.register(detector.close)
    threading.Thread(target=detector.run, name="hpcrun looks out", daemon=True).start()


def read_stall_seconds() -> float:
    """Return the user's limit, HPCRUN_STALL_SECONDS.

    Raises:
        HpcrunError: It is no number of seconds.
    """
    return read_number("HPCRUN_STALL_SECONDS", DEFAULT_SECONDS, "seconds", "600, or 0 for no limit")
