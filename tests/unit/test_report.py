"""The page on runs: all of it is in one file, and what it shows is text, whatever it is."""

import json
import re
import sys
from html.parser import HTMLParser

import pytest

from hpcrun.report import plots
from hpcrun.report.page import strip_control_sequences


class Page(HTMLParser):
    """A page, read as a browser reads it.

    Args:
        text: Its HTML.
    """

    def __init__(self, text):
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.feed(text)
        self.text = "\n".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.texts.append(data)

    def titles(self):
        """What pictures tell of their points."""
        return [text for text in self.texts if re.fullmatch(r".*, epoch \d+: .*", text)]


@pytest.fixture
def report(cli, tmp_path):
    def call(*argv):
        file = tmp_path / "page.html"
        code, out, err = cli("report", *argv, "--output", str(file))
        assert (code, out) == (0, f"{file}\n"), err
        return Page(file.read_text())

    return call


def metrics(run, *lines):
    (run.directory / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def log(run, text):
    run.log("out").write_text(text)


def write_heartbeat(run, rank, **said):
    folder = run.directory / "heartbeats"
    folder.mkdir(exist_ok=True)
    (folder / f"rank-{rank}.json").write_text(json.dumps({"rank": rank, "every": 5.0, "time": 1.0, **said}))


def epochs(**figures):
    """Return two lines of metrics; the second has half the figures."""
    return [{"epoch": n, "epochs": 2, **{name: value / n for name, value in figures.items()}} for n in (1, 2)]


HOSTILE = (
    """</pre></title></style><script>alert(1)</script><img src=x onerror=alert(2)>"'{{ 7 * 7 }}\x1b[31m\x00\udce9&lt;"""
)


def test_output_of_a_job_is_escaped_in_html(report, fake_slurm, tmp_path):
    name = "".join(filter(str.isprintable, HOSTILE))  # no other is taken
    run = fake_slurm.submit(name, environment={"A": HOSTILE.replace("\x00", "")})
    fake_slurm.write_exit_record(run, 3)
    metrics(run, {"epoch": 1, "loss": 1, f"val_{HOSTILE}": 2, HOSTILE: [HOSTILE]})
    (run.directory / "result.json").write_text(json.dumps({HOSTILE: HOSTILE, "versions": {HOSTILE: HOSTILE}}))
    write_heartbeat(run, 0, host=HOSTILE, images_per_second=1)
    for name in ("packages.txt", "modules.txt", "slurm.txt", "code.diff"):
        (run.directory / "provenance" / name).write_text(HOSTILE, errors="surrogateescape")
    log(run, "a \xe9 \x1b[32mgreen\x1b[0m\n50%\r100%\n" + HOSTILE.replace("\udce9", "e"))
    page = report("last")
    assert not {"script", "img", "link", "iframe", "object", "a"} & set(page.tags)
    assert [name for _, name, _ in page.attributes if name.startswith("on") or name in {"src", "href"}] == []
    assert page.tags.count("pre") == page.texts.count("Script") + 4  # modules, diff, Slurm's view, log
    for words in ("alert(2)", "{{ 7 * 7 }}", "&lt;", "a \xe9 green\n100%\n"):
        assert words in page.text
    assert "\x1b" not in page.text
    assert "\x00" not in page.text


def test_a_page_is_not_written_to_a_file_of_another_format(cli, fake_slurm, tmp_path):
    fake_slurm.submit()
    code, _, err = cli("report", "--output", str(tmp_path / "run.pdf"))
    assert (code, list(tmp_path.glob("run.*"))) == (2, [])
    assert f"ERROR: --output={tmp_path}/run.pdf: the page is HTML\nHINT: --output={tmp_path}/run.html" in err


def test_the_page_loads_nothing_from_the_network(report, fake_slurm):
    run = fake_slurm.submit()
    metrics(run, *epochs(loss=1.0))
    page = report()
    policy = ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'")
    assert policy in page.attributes
    addresses = [value for _, name, value in page.attributes if "://" in (value or "") and not name.startswith("xmlns")]
    assert addresses == []
    assert "@import" not in page.text
    assert "url(" not in page.text


def test_the_report_of_a_run_has_curves(report, fake_slurm):
    run = fake_slurm.submit("net")
    metrics(run, *epochs(loss=1.0, val_loss=3.0, images_per_second=500.0, learning_rate=0.1, seconds=1.0))
    page = report()
    assert page.tags.count("svg") == 3
    assert page.titles() == [
        "1 net, epoch 1: 1", "1 net, epoch 2: 0.5", "1 net validation, epoch 1: 3", "1 net validation, epoch 2: 1.5",
        "1 net, epoch 1: 500", "1 net, epoch 2: 250", "1 net, epoch 1: 0.1", "1 net, epoch 2: 0.05",
    ]  # fmt: skip


def test_each_fit_of_a_script_has_its_curve(report, fake_slurm):
    run = fake_slurm.submit("net")
    metrics(run, *epochs(loss=1.0), *({"fit": 1, **line} for line in epochs(loss=4.0)))
    page = report()
    assert page.tags.count("svg") == 1
    assert page.titles() == [
        "1 net, epoch 1: 1", "1 net, epoch 2: 0.5", "1 net, fit 2, epoch 1: 4", "1 net, fit 2, epoch 2: 2",
    ]  # fmt: skip


def test_runs_share_plots_and_differences_are_listed(report, fake_slurm):
    for nodes in (1, 2):
        run = fake_slurm.submit("net", nodes=nodes)
        metrics(run, *epochs(loss=1.0 * nodes))
    page = report("1", "2")
    assert page.tags.count("svg") == 1
    assert page.titles() == ["1 net, epoch 1: 1", "1 net, epoch 2: 0.5", "2 net, epoch 1: 2", "2 net, epoch 2: 1"]
    assert {"What differs", "nodes ", "2 runs"} <= set(page.texts)


def test_tasks_of_a_sweep_are_labelled_with_their_values(report, fake_slurm, cli):
    fake_slurm.replace_command("sbatch", "echo 7")
    cli("submit", "--site", "slurm", "--sweep", "lr=0.1,0.2", "--", "a.out")
    page = report("7")
    assert next(text for text in page.texts if text.startswith("7_1 ")) == "7_1 a.out lr=0.2"


def test_the_report_has_outcome_figures_logs_and_provenance(report, fake_slurm):
    run = fake_slurm.submit("net", nodes=2, environment={"SEED": "42"})
    fake_slurm.write_exit_record(run, 3)
    (run.directory / "result.json").write_text(json.dumps({"test_accuracy": 0.875, "versions": {"keras": "3.15"}}))
    log(run, "".join(f"line {number}\n" for number in range(500)))
    (run.directory / "logs/rank-1.log").write_text("rank 1 speaks\n")
    (run.directory / "provenance/packages.txt").write_text("# Python 3.12.1, /usr/bin/python\nnumpy==2.1\n")
    page = report("1")
    for words in (
        "failed",
        "the ranks ended with exit code 3",
        "test accuracy",
        "0.875",
        "3.15",
        "42",
        "rank 1 speaks",
    ):
        assert words in page.text
    assert "line 440\n" in page.text
    assert "line 439\n" not in page.text
    assert "#SBATCH --nodes=2" in page.text
    assert any(text.endswith("site-configs/slurm.toml:9") for text in page.texts)
    at = page.texts.index("numpy")
    assert "2.1" in page.texts[at : at + 3]
    opened = [name for tag, name, _ in page.attributes if tag == "details" and name == "open"]
    assert len(opened) == 3  # both logs of a job that failed, and its arguments


def test_the_report_has_the_last_heartbeats_of_the_ranks(report, fake_slurm):
    run = fake_slurm.submit()
    for rank, speed in ((10, 50.0), (9, 200.0), (2, None)):
        write_heartbeat(run, rank, host=f"n{rank}", epoch=1, step=3, steps=None, images_per_second=speed)
    (run.directory / "heartbeats/rank-3.json").write_text('{"rank": 3, "ho')
    page = report()
    assert [text for text in page.texts if text in {"n2", "n3", "n9", "n10"}] == ["n2", "n9", "n10"]
    assert "images/s" in page.texts
    assert [value for _, name, value in page.attributes if name == "style"] == ["width: 100%", "width: 25%"]


def test_synchronous_ranks_are_compared_by_their_own_time_per_step(report, fake_slurm):
    run = fake_slurm.submit()
    for rank, seconds in enumerate((0.2, 0.1)):
        write_heartbeat(run, rank, host="n1", images_per_second=500.0, own_seconds=seconds)
    page = report()
    assert {"own seconds per step", "0.2", "0.1"} <= set(page.texts)
    assert [value for _, name, value in page.attributes if name == "style"] == ["width: 100%", "width: 50%"]


def test_a_pending_run_has_a_report(report, fake_slurm):
    fake_slurm.submit()
    fake_slurm.set_queue((1, "PENDING", "Resources", "", "0:00"))
    page = report()
    assert {"pending", "Resources"} <= set(page.texts)
    assert "svg" not in page.tags


def test_the_page_is_named_after_its_job(cli, fake_slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fake_slurm.submit("a/b c")
    assert cli("report")[1] == "hpcrun-a-b-c-1.html\n"
    assert (tmp_path / "hpcrun-a-b-c-1.html").exists()


def test_a_report_replaces_a_report_but_no_other_file(cli, fake_slurm, tmp_path):
    fake_slurm.submit()
    page, mine = tmp_path / "page.html", tmp_path / "mine.py"
    for _ in range(2):
        assert cli("report", "-o", str(page))[0] == 0
    mine.write_text("precious")
    code, _, err = cli("report", "-o", str(mine))
    assert (code, "mine.py exists, and hpcrun did not write it" in err, mine.read_text()) == (2, True, "precious")
    code, _, err = cli("report", "-o", str(tmp_path / "nowhere" / "page.html"))
    assert (code, "there is no folder" in err) == (2, True)


def test_too_many_runs_are_refused(cli, fake_slurm):
    fake_slurm.replace_command("sbatch", "echo 7")
    cli("submit", "--site", "slurm", "--sweep", "seed=1..51", "--", "a.out")
    code, _, err = cli("report", "7")
    assert (code, "51 runs were selected; a page has at most 50" in err) == (2, True)


def test_a_missing_pygal_is_an_error_with_the_install_command(cli, fake_slurm, tmp_path, monkeypatch):
    run = fake_slurm.submit()
    metrics(run, *epochs(loss=1.0))
    monkeypatch.setitem(sys.modules, "pygal", None)
    monkeypatch.chdir(tmp_path)
    code, _, err = cli("report")
    assert code == 2
    assert "HINT: pip install 'hpcrun-slurm[report]'" in err
    assert list(tmp_path.glob("*.html")) == []


@pytest.mark.parametrize("values", [
    [0.0], [5], [0, 0, 0], [1e-9, 1e9], [-3.0, -2.0], [float("nan"), 1.0, float("inf"), 10**400], [1e90, 1.0], [True],
])  # fmt: skip
def test_any_numbers_can_be_drawn(values):
    lines = [{"epoch": number, "loss": value} for number, value in enumerate(values, 1)]
    (picture,) = plots.draw_plots({"1 net": lines})
    assert "<svg" in picture.svg


def test_a_long_curve_keeps_its_last_point():
    lines = [{"loss": 1 / number} for number in range(1, 5001)]
    (picture,) = plots.draw_plots({"1 net": lines})
    assert picture.svg.count(", epoch ") <= plots.MAX_POINTS
    assert ", epoch 5000: " in picture.svg


def test_colours_repeat_for_many_runs():
    (picture,) = plots.draw_plots({str(number): epochs(loss=1.0) for number in range(3 * plots.COLOUR_COUNT)})
    assert picture.svg.count(", epoch 2: ") == 3 * plots.COLOUR_COUNT


def test_control_sequences_are_stripped():
    assert strip_control_sequences("\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07a\rb\x1b[K\n") == "red\nb\n"
