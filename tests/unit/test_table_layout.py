"""Tables on a terminal: whole words, at most two lines for each row, no empty columns."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.cli import output
from hpcrun.cli.table_layout import COLUMN_GAP, lay_out

COLUMNS = ("job", "name", "site", "state", "ranks", "reason")
JOBS = [
    ("12", "resnet50", "slurm", "out of time", "8", "stopped by SIGUSR2 before its time limit; requeued, 1 of 3 times"),
    ("13_0", "lenet5 learning-rate=0.01 seed=3", "slurm", "completed", "2", ""),
]


@pytest.fixture
def shown(monkeypatch):
    """Return a function that returns the lines of a table on a terminal of some width."""

    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self):
            return True

    def draw(width, rows, **options):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        terminal = Terminal()
        monkeypatch.setattr("sys.stdout", terminal)
        output.table(COLUMNS, rows, **options)
        return terminal.getvalue().splitlines()

    return draw


def test_a_wide_terminal_shows_each_job_on_one_line(shown):
    lines = shown(200, JOBS)
    assert len(lines) == 4
    assert lines[2].endswith("requeued, 1 of 3 times")
    assert lines[3].split() == ["13_0", "lenet5", "learning-rate=0.01", "seed=3", "slurm", "completed", "2"]


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_narrow_terminal_wraps_between_words(shown, width):
    lines = shown(width, JOBS, optional_columns=("ranks", "site"))
    assert max(map(len, lines)) <= width
    assert len(lines) <= 2 + 2 * len(JOBS)
    text = "\n".join(lines)
    for word in ("12", "13_0", "resnet50", "completed", "out of", "stopped"):
        assert word in text


def test_a_narrow_terminal_shows_no_optional_columns(shown):
    assert "ranks" in shown(200, JOBS, optional_columns=("ranks", "site"))[0]
    assert shown(60, JOBS, optional_columns=("ranks", "site"))[0].split() == ["job", "name", "state", "reason"]


def test_texts_are_cut_between_words_and_short_cells_are_not_wrapped(shown):
    rows = [("1234", "net", "", "out of time", "164 kB", "the last of these words are not shown")]
    text = "\n".join(shown(44, rows))
    assert "164 kB" in text
    assert text.rstrip().endswith(" …")


def test_a_long_name_drops_no_optional_column(shown):
    rows = [("1234", "n" * 60, "slurm", "failed", "8", "")]
    assert "ranks" in shown(80, rows, optional_columns=("ranks", "site"))[0]


def test_empty_columns_are_left_out(shown):
    assert shown(80, [("1", "net", "", "pending", "", "")])[0].split() == ["job", "name", "state"]


def test_text_that_must_be_complete_is_not_cut(shown):
    lines = shown(50, JOBS, max_lines=None)
    assert "…" not in "".join(lines)
    assert " ".join(" ".join(line[line.rindex("  ") :] for line in lines).split()).count("times") == 1


def test_the_end_of_a_path_is_shown(shown):
    lines = shown(60, [("1", "net", "local", "failed", "1", "/a/very/long/path/of/a/site/file/mycluster.toml")])
    assert "/mycluster.toml" in "\n".join(lines)


def test_a_pipe_gets_all_columns_on_one_line(capsys):
    output.table(COLUMNS, JOBS, optional_columns=("ranks",))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].split() == list(COLUMNS)


@given(st.lists(st.tuples(st.text(max_size=40), st.text(max_size=40)), min_size=1), st.integers(20, 120))
def test_any_table_fits(rows, width):
    for lines in lay_out(rows, width):
        assert 1 <= len(lines) <= 2
        assert all(len(COLUMN_GAP.join(line)) <= width for line in lines)
