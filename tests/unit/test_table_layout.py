"""Tables on a terminal: whole words, at most two lines for each row, no empty columns."""

import re

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
def shown(terminal):
    """Return a function that returns the lines of a table on a terminal of some width."""

    def draw(width, rows, **options):
        screen = terminal(width)
        output.table(COLUMNS, rows, **options)
        return screen.getvalue().splitlines()

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


@pytest.mark.parametrize("width", [50, 60, 80])
def test_the_values_of_a_sweeps_tasks_are_shown_whole(shown, width):
    reason = "the ranks ended with exit code 3, that of rank 1 on node7, after 1 of 2 ranks had completed"
    rows = [
        (f"13_{seed}", f"lng code=0 learning-rate=0.01 seed={seed}", "slurm", "failed", "2", reason)
        for seed in (11, 12)
    ]
    lines = shown(width, rows, optional_columns=("ranks", "site"))
    assert max(map(len, lines)) <= width
    assert len(lines) <= 2 + 2 * len(rows)
    text = "\n".join(lines)
    assert all(value in text for value in ("code=0", "=0.01", "seed=11", "seed=12"))


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_table_wider_than_the_terminal_is_split_between_columns(shown, repeated):
    rows = [tuple(f"{'value' * 4}{row}{column}" for column in range(6)) for row in range(2)]
    lines = shown(80, rows, repeated_columns=repeated)
    assert max(map(len, lines)) <= 80
    tables = [table.splitlines() for table in "\n".join(lines).split("\n\n")]
    assert [table[0].split()[:repeated] for table in tables] == [[*COLUMNS[:repeated]]] * len(tables)
    assert [word for table in tables for word in table[0].split()[repeated:]] == [*COLUMNS[repeated:]]
    assert [word for table in tables for word in table[3].split()[repeated:]] == [*rows[1][repeated:]]


def test_a_path_that_must_be_complete_is_broken_behind_a_slash(shown):
    path = "/a/very/long/path/of/a/site/file/mycluster.toml"
    text = "\n".join(shown(60, [("1", "net", "local", "failed", "1", path)], max_lines=None))
    assert "".join(text.split()).endswith(path)
    assert re.search(r"/\n *\S+/mycluster\.toml$", text), text


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
