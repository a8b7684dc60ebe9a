"""Score `hpcrun why` on logs of failed jobs: python -m tests.failures.score [FOLDER ...] [-v]."""

import argparse
import os
import re
import sys
import tempfile
import tomllib
from collections import Counter
from pathlib import Path

from hpcrun.why.explanation import Explanation, explain
from tests.unit.test_why import SACCT, SQUEUE, Recorded

FOLDER = Path(__file__).parent
RESULTS = ("named", "unknown", "wrong")
GENERAL = "traceback"  # the signature of any exception; it quotes the program and explains little


def labels_of(which):
    """Return the label files of a part of the corpus."""
    return sorted((FOLDER / which).glob("*.toml"))


def explain_log(file, folder):
    """Explain a labelled log as the log of a job that has ended, in an empty folder."""
    label = tomllib.loads(file.read_text())
    (folder / "bin").mkdir()
    for name, script in (("squeue", SQUEUE), ("sacct", SACCT)):
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    name = {"stdout": "12_0_log.out", "stderr": "12_0_log.err"}[label["where"]]
    run = Recorded(folder).job(
        label.get("state", "FAILED"),
        exit_code=label.get("exit_code"),
        logs={name: file.with_suffix(".log").read_bytes().decode()},
        launcher=label.get("launcher", "none"),
    )
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}/bin:{path}"
    try:
        return label, explain(run)
    finally:
        os.environ["PATH"] = path


def judge(label, explanation: Explanation):
    """Return named, unknown or wrong."""
    if not explanation.is_known:
        return "unknown"
    diagnosis = explanation.diagnosis
    text = "\n".join([explanation.headline, *(seen.line for seen in diagnosis.evidence), diagnosis.fix])
    return "named" if all(re.search(word, text, re.IGNORECASE) for word in label["mentions"]) else "wrong"


def score(which, verbose):
    """Return the count of each result, and print the logs that are not named, but never those of `aside`."""
    counts: Counter[str] = Counter()
    for file in labels_of(which):
        with tempfile.TemporaryDirectory() as folder:
            label, explanation = explain_log(file, Path(folder))
        result = judge(label, explanation)
        counts[result] += 1
        counts[GENERAL] += result == "named" and explanation.diagnosis.name == GENERAL
        if verbose and which != "aside" and result != "named":
            print(f"{result:8} {file.stem:40} {explanation.diagnosis.name}: {explanation.headline}")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    folders = sorted(folder.name for folder in FOLDER.iterdir() if labels_of(folder.name))
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help=f"{', '.join(folders)}; all when none is named")
    parser.add_argument("-v", "--verbose", action="store_true", help="list the logs that are not named, but for aside")
    args = parser.parse_args()
    if unknown := set(args.folders) - {*folders}:
        parser.error(f"no logs in {', '.join(sorted(unknown))}; choose from {', '.join(folders)}")
    parts = args.folders or folders
    rows = {which: score(which, args.verbose) for which in parts}
    print(f"{'':8}" + "".join(f"{title:>14}" for title in (*RESULTS, "logs", "named", "by traceback")))
    for which, counts in rows.items():
        logs = sum(counts[result] for result in RESULTS)
        shown = "".join(f"{counts[result]:14}" for result in RESULTS)
        print(f"{which:8}{shown}{logs:14}{counts['named'] / logs:14.1%}{counts[GENERAL]:14}")


if __name__ == "__main__":
    sys.exit(main())
