"""Wrong values in a ``workload.toml`` are one error that names the key."""

import shlex

import pytest


@pytest.fixture
def show(cli, tmp_path, monkeypatch):
    """Return a function that shows a workload with a workload.toml, and returns the exit code and errors."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/train.py").touch()

    def call(text):
        (tmp_path / "mine/workload.toml").write_text(text)
        code, _, err = cli("workload", "show", "./mine")
        return code, err

    return call


@pytest.mark.parametrize(("text", "message"), [
    ("[options]\nlr = 0.1", "options.lr: 0.1 is not a table (write [options.lr], and below it default = 0.1)"),
    ("[options.n]\ndefault = 1\nmininum = 1", "options.n has an unknown key mininum (did you mean min?)"),
    (
        "[options.a]\ndefault = 'x'\n[options.b]\ndefault = 1\nrequires = [{ multiple_of = 'a' }]",
        "options.b.requires: multiple_of is for whole numbers, and --a is text",
    ),
    ("[options.n]\ndefault = 1\nwhy = 1", "options.n has an unknown key why (known keys: default, type, "),
    ('[options.n]\ndefault = "1"\nmin = 1', "options.n.min limits a number, and the option is text"),
    ("[options.n]\ndefault = true\nmax = 1", "options.n.max limits a number, and the option is true or false"),
    ('[options.n]\ndefault = 1\nmin = "1"', "options.n.min: \"1\" is not a number"),
    ('[options.n]\ntype = "int"\ndefault = 0.5', "options.n.default: 0.5 is not a whole number"),
    ('[options.n]\ntype = "integer"', "options.n.type = 'integer' is not one of str, int, float, run"),
    ('[options.n]\ndefault = "a"\nchoices = "a b"', "options.n.choices: \"a b\" is not a list"),
    ("[options.n]\ndefault = 0\nmin = 1", "options.n.default: 0 is outside the limits of the option (min = 1)"),
    ("[options.n]\ndefault = 5.5\nmax = 5", "options.n.default: 5.5 is outside the limits of the option (max = 5)"),
    ("[options.n]\ndefault = 1\nchoices = ['1']", "options.n.choices: \"1\" is not a whole number"),
    ("[options.n]\ndefault = 1\nrequires = { min = 1 }", "options.n.requires: { min = 1 } is not a list"),
    ("[options.n]\ndefault = 1\nrequires = ['x=1']", "options.n.requires: \"x=1\" is not a table"),
    ("[options.n]\ndefault = 1\nrequires = [{ max = '1' }]", "options.n.requires: max: \"1\" is not a number"),
    ("[options.n]\ndefault = 2026-01-01\nmin = 1", "options.n.default: 2026-01-01 is not text, a number, or true or"),
    ("[options.n]\ndefault = 2026-01-01\nchoices = [1]", "options.n.default: 2026-01-01 is not text, a number, or "),
    ("[options]\nfast = true", "options.fast: true is not a table (write [options.fast], and below it default = true)"),
    ("options = ['n']", "options: [\"n\"] is not a table (write [options])"),
    ("packages = 'keras'", "packages: \"keras\" is not a list (write [\"keras\"])"),
    ("entry = 1", "entry: 1 is not text"),
    ("scirpt = 'x'", "unknown key scirpt\nHINT: known keys: "),
    ("[resources]\nnode = 2", "unknown key resources.node\nHINT: did you mean nodes?\n"),
    ("[resources]\ngpus = 4", "unknown key resources.gpus\nHINT: did you mean gpus_per_node?\n"),
    ("[resources]\nntasks-per-node = 4", "unknown key resources.ntasks-per-node\nHINT: did you mean ntasks_per_node?"),
    ("[resources]\nfoo = 4", "unknown key resources.foo\nHINT: known keys: nodes, ntasks,"),
    ("[data]\nopton = 'n'", "unknown key data.opton\nHINT: did you mean option?\n"),
    ("[data]\noption = 'n'\nlayouts = 'train'\n[options.n]\ntype = 'str'", "data.layouts: \"train\" is not a list"),
])  # fmt: skip
def test_wrong_values_are_refused(show, tmp_path, text, message):
    code, err = show(text)
    assert (code, err.startswith(f"ERROR: {tmp_path}/mine/workload.toml: {message}")) == (2, True), err


@pytest.mark.parametrize("text", [
    "[options.n]\ndefault = 1\nmin = 0.5\nchoices = [1, 2]\nhelp = 'x'\naliases = ['m']",
    "[options.n]\ntype = 'float'\ndefault = 1\nmin = 1\nmax = 2\nrequires = [{ when = 'n=1', max_ranks = 2 }]",
    "[options.n]\ntype = 'str'\nchoices = ['a']\nhints = { b = 'a' }",
    "[options.n]\ntype = 'run'\nrequired = true",
    "[options.n]\ntype = 'int'\nmin = 1",
])  # fmt: skip
def test_right_values_are_not_refused(show, text):
    assert show(text) == (0, "")


@pytest.mark.parametrize("folder", ["./mine", "mine", "../my nets/mine"])
@pytest.mark.parametrize("arguments", ["--n=0", "--m=1", "--n=x", "--n=4"])
def test_hints_name_the_workload_as_the_user_did(cli, tmp_path, show, monkeypatch, folder, arguments):
    show("[options.n]\ndefault = 1\nmin = 1\n[options.n.hints]\n[[options.n.requires]]\nmax = 3")
    if " " in folder:
        (tmp_path / "my nets").mkdir()
        (tmp_path / "mine").rename(tmp_path / "my nets/mine")
        (tmp_path / "cwd").mkdir()
        monkeypatch.chdir(tmp_path / "cwd")
    code, _, err = cli("submit", folder, "--site", "local", "--no-gpu", "--dry-run", "--", arguments)
    hint = f"HINT: hpcrun workload show {shlex.quote(folder)} lists its options\n"
    assert (code, err.endswith(hint)) == (2, True), err


def test_an_option_without_a_value_has_no_share_of_the_ranks(cli, tmp_path, show):
    show('[options.n]\ntype = "int"\nmin_per_rank = 1')
    code, out, err = cli("submit", "./mine", "--site", "local", "--no-gpu", "-n", "2", "--dry-run")
    assert (code, "mine/train.py\n" in out) == (0, True), err
