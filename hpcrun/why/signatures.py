"""What is known to keep jobs waiting and to end them: the tables ``pending.toml`` and ``failures.toml``.

An entry of a table has

- ``name``: a word for scripts;
- ``clues``: any one of them recognises it. A clue is a set of conditions that must all hold: ``state``, ``reason`` and
  ``cancelled_by`` are regular expressions for the whole of what the scheduler (or the exit record) says, ``scheduler``
  and ``launcher`` names, ``exit_code`` a list, ``began = false`` that its script has left nothing, ``full = true`` that
  the run directory's file system has no room now, so that logs may lack what was last written, and ``log`` a regular
  expression that is searched for in the logs' ends;
- ``says`` and ``fix``: the plain words, and what to do. ``{site}``, ``{job_id}`` and the like stand for the job's facts
  (`hpcrun.why.facts.Facts.words`), and for the clue's named groups;
- ``brief``: a few words, for tables, where Slurm's reason alone recognises it;
- ``general = true``: of no interest where anything else is recognised;
- ``always = true``: looked for in jobs that run or completed, too.

The order of a table is that of its answers: the more specific stands first.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.why.evidence import Evidence

if TYPE_CHECKING:
    from hpcrun.why.facts import Facts

OWN_WORDS = ("job_id", "run_dir", "again", "host")
"""Words of a text that differ between jobs to which the same has happened."""


@dataclass(frozen=True)
class Finding:
    """One thing that was recognised.

    Attributes:
        name: The signature's.
        says: What it is, in plain words.
        evidence: What shows it.
        fix: What to do.
        cause: What it is, without what is one job's own: the same for all jobs that it has happened to.
    """

    name: str
    says: str
    evidence: tuple[Evidence, ...]
    fix: str
    cause: str = ""


@dataclass(frozen=True)
class Signature:
    """One entry of a table; see the module's description."""

    name: str
    clues: tuple[dict[str, Any], ...]
    says: str
    fix: str
    brief: str = ""
    general: bool = False
    always: bool = False

    def find(self, facts: Facts) -> Finding | None:
        """Return what the first clue that holds finds; None where none holds."""
        held = (holds for clue in self.clues if (holds := _holds(clue, facts)))
        if (first := next(held, None)) is None:
            return None
        groups, evidence = first
        seen = [evidence]
        if evidence is facts.told:  # a line of a log says more than a state
            seen += [other for _, other in held if other is not facts.told][:1]
        words = {**facts.words, **groups}
        cause = self.says.format_map({**words, **dict.fromkeys(OWN_WORDS, "...")}).replace(
            str(facts.run.directory), "..."
        )
        return Finding(self.name, self.says.format_map(words), tuple(seen), self.fix.format_map(words), cause)


@cache
def table(name: str) -> tuple[Signature, ...]:
    """Return the signatures of a table, ``failures`` or ``pending``, the most specific first."""
    text = Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8")
    return tuple(Signature(**{**entry, "clues": tuple(entry["clues"])}) for entry in tomllib.loads(text)["signature"])


def code(reason: str) -> str:
    """Return Slurm's reason for which a job waits, without what stands in brackets or behind a comma."""
    return re.split(r"[,(]", reason.strip("()"))[0].strip()


@cache
def in_brief(reason: str) -> str:
    """Return Slurm's reason for which a job waits, and a few plain words where it is known; nothing for no reason."""
    known = ((signature.brief, clue) for signature in table("pending") for clue in signature.clues)
    words = (brief for brief, clue in known if "reason" in clue and re.fullmatch(clue["reason"], code(reason)))
    first = next(words, "") if reason else ""
    return f"{code(reason)} ({first})" if first else reason


def findings(name: str, facts: Facts, *, well: bool = False) -> list[Finding]:
    """Return what a table recognises in a job, the most specific first.

    Args:
        name: The table.
        facts: The job's facts.
        well: Whether the job runs or completed: then only what is looked for in such jobs.
    """
    matched = [(s, f) for s in table(name) if (s.always or not well) and (f := s.find(facts))]
    if facts.site_key:  # the script said itself why it does not go on
        matched = [(s, f) for s, f in matched if f.evidence[0] is facts.told][:1]
    specific = [(s, f) for s, f in matched if not s.general] or matched[:1]
    found: dict[Evidence, Finding] = {}
    for _, finding in specific:  # of two that go by the same line, the more specific
        found.setdefault(finding.evidence[-1], finding)
    return list(found.values())


def _holds(clue: dict[str, Any], facts: Facts) -> tuple[dict[str, str], Evidence] | None:
    """Return a clue's named groups and what shows it, where it holds."""
    groups: dict[str, str] = {}
    for key in ("state", "reason", "cancelled_by", "scheduler", "launcher"):
        if key in clue:
            if not (match := re.fullmatch(clue[key], getattr(facts, key))):
                return None
            groups |= match.groupdict("")
    if "exit_code" in clue and facts.exit_code not in clue["exit_code"]:
        return None
    if any(key in clue and getattr(facts, key) is not clue[key] for key in ("began", "full")):
        return None
    if "log" not in clue:
        return groups, facts.room if "full" in clue else facts.told
    pattern = re.compile(clue["log"], re.MULTILINE)
    for log in facts.logs:
        match = None
        for match in pattern.finditer(log.text):  # noqa: B007 - the last one counts
            pass
        if match:
            return {**groups, **match.groupdict("")}, Evidence(log.name, log.line(match))
    return None
