"""Parsing of a workload's own options."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.declared_options import map_option_names, parse, replace_aliases, require_ranks
from hpcrun.errors import HpcrunError

TABLE: dict[str, dict[str, Any]] = {
    "batch-size": {"default": 128, "help": "100 % of the samples of a step"},
    "learning-rate": {"default": 0.1, "aliases": ["lr"]},
    "data-dir": {"type": "str"},
    "seed": {"type": "int"},
    "dataset": {"default": "digits", "choices": ["digits", "mnist"]},
    "synthetic-data": {"default": False},
    "shuffle": {"default": True},
    "share": {"default": 0.5, "min": 0, "max": 1},
}


def test_defaults():
    assert vars(parse("w", TABLE, [])) == {
        "batch_size": 128,
        "learning_rate": 0.1,
        "data_dir": None,
        "seed": None,
        "dataset": "digits",
        "synthetic_data": False,
        "shuffle": True,
        "share": 0.5,
    }


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--batch-size", "64"], "batch_size", 64),
        (["--batch_size=64"], "batch_size", 64),
        (["--learning-rate", "1e-3"], "learning_rate", 0.001),
        (["--learning_rate", "-1"], "learning_rate", -1.0),
        (["--lr", "0.2"], "learning_rate", 0.2),
        (["--lr=0.2"], "learning_rate", 0.2),
        (["--data-dir", "/a b/c"], "data_dir", "/a b/c"),
        (["--dataset", "mnist"], "dataset", "mnist"),
        (["--synthetic_data"], "synthetic_data", True),
        (["--no-shuffle"], "shuffle", False),
        (["--seed", "1", "--seed", "2"], "seed", 2),
    ],
)
def test_options_are_parsed(argv, name, value):
    assert getattr(parse("w", TABLE, argv), name) == value


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (["--bach-size", "3"], "w has no option '--bach-size'", "did you mean --batch-size?"),
        (["--batch", "3"], "w has no option '--batch'", "did you mean --batch-size?"),
        (["--bach_size=3"], "w has no option '--bach_size';", "did you mean --batch-size?"),
        (["--lrr=1"], "--learning-rate (--lr)", "did you mean --lr?"),
        (["--lrate=1"], "--learning-rate (--lr)", "did you mean --lr?"),
        (["--rate=1"], "--learning-rate (--lr)", "did you mean --learning-rate?"),
        (["--colour"], "w has no option '--colour'", "hpcrun workload show w lists its options"),
        (["stray"], "w has no option 'stray'", "hpcrun workload show w lists its options"),
        (
            ["--batch-size", "many"],
            "argument --batch-size/--batch_size: invalid int value: 'many'",
            "hpcrun workload show",
        ),
        (["--batch-size"], "expected one argument", "hpcrun workload show"),
        (["--dataset", "cifar"], "w: --dataset=cifar: must be one of digits, mnist", "hpcrun workload show"),
        (["--dataset", "mnits"], "w: --dataset=mnits: must be one of", "did you mean mnist?"),
        (["--share=-1"], "w: --share=-1.0: must be at least 0 and at most 1", "hpcrun workload show"),
        (["--share", "1.5"], "w: --share=1.5: must be at least 0 and at most 1", "hpcrun workload show"),
    ],
)
def test_invalid_options(argv, message, hint):
    with pytest.raises(HpcrunError) as caught:
        parse("w", TABLE, argv)
    assert message in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert caught.value.exit_code == 2


def test_option_without_a_type():
    with pytest.raises(HpcrunError, match="its option --x has no type"):
        parse("w", {"x": {"help": "?"}}, [])
    with pytest.raises(HpcrunError, match="its option --x has no type"):
        parse("w", {"x": {"type": "complex"}}, [])


def test_records_use_the_main_name_of_an_option():
    words = ["--lr", "1", "--lr=2", "--learning_rate=3", "--no-shuffle", "--data-dir=--lr"]
    expected = ("--learning-rate", "1", "--learning-rate=2", "--learning-rate=3", "--no-shuffle", "--data-dir=--lr")
    assert replace_aliases(map_option_names("w", TABLE), words) == expected


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": {"default": 1, "aliases": ["b"]}, "b": {"default": 2}}, "--b names two options, --a and --b"),
        ({"a": {"default": 1, "aliases": "lr"}}, "its option --a has invalid aliases: 'lr'"),
        ({"a": {"default": 1, "aliases": ["--lr"]}}, "its option --a has invalid aliases"),
    ],
)
def test_invalid_aliases(table, message):
    with pytest.raises(HpcrunError, match=message):
        parse("w", table, [])


@given(st.integers(), st.floats(allow_nan=False), st.text().filter(lambda s: not s.startswith("-")))
def test_any_value_is_parsed_unchanged(batch, rate, folder):
    argv = [f"--batch-size={batch}", f"--learning-rate={rate!r}", f"--data-dir={folder}"]
    args = parse("w", TABLE, argv)
    assert (args.batch_size, args.learning_rate, args.data_dir) == (batch, rate, folder)


def test_workload_show_lists_the_choices_of_an_option(cli):
    _, out, _ = cli("workload", "show", "lenet5")
    assert re.search(r"^--dataset +digits, mnist, shards, synthetic; default: mnist if ", out, re.MULTILINE)


def test_workload_show_cuts_no_help_on_a_narrow_terminal(cli, terminal):
    screen = terminal(80)
    cli("workload", "show", "resnet50")
    text = screen.getvalue()
    assert "…" not in text
    assert "efficientnetv2-b3; network" in " ".join(text.split())
    assert max(map(len, text.splitlines()[1:])) <= 80


RULES: dict[str, dict[str, Any]] = {
    "arch": {"default": "resnet50"},
    "image-size": {"default": 224, "requires": [{"when": "arch=inception_v3|xception", "min": 75}]},
    "xla": {"default": False, "requires": [{"when": "sync=true", "choices": [False]}]},
    "sync": {"default": False},
    "wire": {"default": "float32", "requires": [{"when": "sync=false", "choices": ["float32", "ternary"]}]},
    "fine-tune": {"type": "str"},
    "freeze": {"default": False, "requires": [{"option": "fine-tune"}]},
}


@pytest.mark.parametrize("argv", [
    ["--image-size=32"],
    ["--image-size=75", "--arch=inception_v3"],
    ["--xla"],
    ["--sync", "--wire=float16"],
    ["--freeze", "--fine-tune=RUN"],
    ["--no-freeze"],
])  # fmt: skip
def test_rules_allow_these_values(argv):
    parse("w", RULES, argv)


@pytest.mark.parametrize(("argv", "message"), [
    (["--image-size=74", "--arch=xception"], "--image-size=74: must be at least 75 with --arch=xception"),
    (["--arch=inception_v3", "--image-size=32"], "--image-size=32: must be at least 75 with --arch=inception_v3"),
    (["--xla", "--sync"], "--xla is impossible with --sync"),
    (["--wire=float16"], "--wire=float16: must be one of float32, ternary with --no-sync"),
    (["--freeze"], "--freeze needs --fine-tune"),
])  # fmt: skip
def test_rules_refuse_these_values(argv, message):
    with pytest.raises(HpcrunError, match=re.escape(f"w: {message}")):
        parse("w", RULES, argv)


@pytest.mark.parametrize(("rule", "message", "hint"), [
    ({"wen": "arch=a"}, "--size has an invalid rule: {'wen': 'arch=a'}", "requires = [{ when ="),
    ({"when": "arhc=a", "min": 3}, "a rule of its option --size names --arhc", "did you mean arch?"),
    ({"option": "x"}, "names --x, which it does not have", "name one of its options"),
])  # fmt: skip
def test_invalid_rules_are_refused(rule, message, hint):
    with pytest.raises(HpcrunError) as error:
        parse("w", {"arch": {"default": "a"}, "size": {"default": 1, "requires": [rule]}}, [])
    assert message in error.value.message
    assert hint in str(error.value.hint)


def test_a_rule_limits_the_ranks():
    table = {"how": {"default": "one", "requires": [{"when": "how=one|two", "min_ranks": 2, "max_ranks": 3}]}}
    for argv, ranks in (([], 2), ([], 3), (["--how=any"], 9)):
        require_ranks("w", table, argv, ranks)
    for ranks, limit in ((1, "at least 2 ranks"), (4, "at most 3 ranks")):
        with pytest.raises(HpcrunError, match=f"w: --how=two runs on {limit}, and the job has {ranks}"):
            require_ranks("w", table, ["--how=two"], ranks)


def test_a_value_is_a_multiple_of_that_of_another_option():
    table: dict[str, Any] = {"width": {"type": "int", "requires": [{"multiple_of": "heads"}]}, "heads": {"type": "int"}}
    for argv in (["--width=7"], ["--heads=7"], ["--width=8", "--heads=4"]):
        parse("w", table, argv)
    with pytest.raises(HpcrunError, match="w: --width=9 is not a multiple of --heads=4") as failure:
        parse("w", table, ["--width=9", "--heads=4"])
    assert failure.value.hint == "--width=12, or another --heads"


def test_ranks_with_other_roles_are_left():
    table = {"servers": {"default": 0, "requires": [{"other_ranks": 2}]}}
    for argv, ranks in (([], 2), (["--servers=3"], 5)):
        require_ranks("w", table, argv, ranks)
    with pytest.raises(HpcrunError, match="w: --servers=3 needs 5 ranks, 2 of them for other roles, and the job has 4"):
        require_ranks("w", table, ["--servers=3"], 4)


PIPELINE: dict[str, dict[str, Any]] = {
    "stages": {"default": 1, "requires": [{"when": "plan=false", "divides_ranks": True}]},
    "plan": {"default": False},
    "batch-size": {"default": 4, "min_per_rank": 1},
}


def test_the_ranks_are_a_multiple_of_those_of_a_replica():
    for argv, ranks in ((["--stages=4"], 8), (["--stages=4"], 16), (["--stages=4", "--plan"], 1), ([], 4)):
        require_ranks("w", PIPELINE, argv, ranks)
    for argv, ranks, message, hint in (
        (["--stages=4"], 6, "--stages=4 does not divide the ranks of the job, 6", "--ntasks 8, before --, or another"),
        (["--stages=4"], 1, "--stages=4 does not divide the ranks of the job, 1", "--ntasks 4, before --, or another"),
        (
            ["--stages=4"],
            20,
            "--batch-size=4 is divided among groups of 4 ranks, and the job has 5",
            "-- --batch-size=5 or more, or request at most 16 ranks",
        ),
        ([], 5, "--batch-size=4 is divided among all ranks, and the job has 5", "-- --batch-size=5 or more"),
    ):
        with pytest.raises(HpcrunError, match=f"w: {message}") as error:
            require_ranks("w", PIPELINE, argv, ranks)
        assert hint in str(error.value.hint)


def test_a_hint_names_what_to_do_instead_of_a_value():
    table = {"kind": {"default": "a", "choices": ["a", "b"], "hints": {"c": "take a"}}}
    for value, hint in (("c", "take a"), ("d", "hpcrun workload show w lists its options")):
        with pytest.raises(HpcrunError, match="must be one of a, b") as error:
            parse("w", table, [f"--kind={value}"])
        assert error.value.hint == hint


@pytest.mark.parametrize("argv", [
    ["--image-size", "31"], ["--batch-size", "0"], ["--arch", "inception_v3", "--image-size", "74"], ["--arch", "x"],
    ["--xla", "--sync-batch-norm"], ["--fine-tune", "{m}", "--sync-batch-norm"], ["--fine-tune={m}", "--image-size=64"],
    ["--fine-tune", "{m}", "--precision", "mixed_bfloat16"],
    ["--label-smoothing", "1"], ["--lr", "nan"], ["--learning-rate=inf"], ["--ema=nan"],
])  # fmt: skip
def test_resnet50_refuses_wrong_values_before_the_queue(cli, tmp_path, argv):
    (tmp_path / "m.keras").write_bytes(b"PK\3\4")
    argv = [word.format(m=tmp_path / "m.keras") for word in argv]
    code, _, err = cli("submit", "resnet50", "--site", "slurm", "--dry-run", "--", "--synthetic-data", *argv)
    assert code == 2
    assert err.startswith("ERROR: resnet50: --")


@pytest.mark.parametrize(("words", "message"), [
    (("-n", "6", "--", "--stages", "4"), "--stages=4 does not divide the ranks of the job, 6\nHINT: --ntasks 8, "),
    (("-n", "2", "--", "--stages", "2", "--xla"), "--stages=2: must be at most 1 with --xla"),
    (("--", "--micro-batches", "2"), "--micro-batches=2 needs --stages"),
    (("--", "--recompute"), "--recompute needs --stages"),
    (("-n", "2", "--", "--stages", "0"), "--stages=0: must be at least 1"),
])  # fmt: skip
def test_transformer_refuses_wrong_stages_before_the_queue(cli, words, message):
    code, _, err = cli("submit", "transformer", "--site", "slurm", "--dry-run", *words)
    assert (code, f"ERROR: transformer: {message}" in err) == (2, True), err


@pytest.mark.parametrize(("words", "message"), [
    (("resnet50-jax", "-n", "3", "--", "--synthetic-data"), "--batch-size=256 is not a multiple of the ranks of the"),
    (("resnet50-jax", "-n", "2", "--", "--synthetic-data", "--batch-size=1"), "HINT: -- --batch-size=2, or another"),
    (("strategies", "-n", "3"), "--batch-size=64 is not a multiple of the ranks of the job, 3 with --strategy=multi"),
    (("strategies", "-n", "2", "--", "--strategy=parameter-server", "--evaluator"), "--evaluator runs on at least 3 "),
    (("mlp", "--", "--seed", "4294967296"), "--seed=4294967296: must be at least 0 and at most 4294967295"),
])  # fmt: skip
def test_workloads_refuse_ranks_and_seeds_that_they_cannot_use(cli, words, message):
    code, _, err = cli("submit", words[0], "--site", "slurm", "--dry-run", *words[1:])
    assert (code, message in err) == (2, True), err


def test_one_process_per_node_shares_a_batch_with_those_of_other_nodes(cli):
    argv = ("submit", "resnet50-jax", "--site", "slurm", "--dry-run", "-N", "2", "--ntasks-per-node", "3")
    code, out, err = cli(*argv, "--launch", "nodes", "--", "--synthetic-data")
    assert (code, "train.py --synthetic-data\n" in out) == (0, True), err


def test_workload_new_copies_a_folder_that_can_be_submitted(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    assert cli("workload", "new", "mynet", "--from", "resnet50")[0] == 0
    assert sorted(file.name for file in (tmp_path / "mynet").iterdir()) == ["networks.py", "train.py", "workload.toml"]
    code, out, _ = cli("submit", "./mynet", "--site", "slurm", "--dry-run", "--", "--synthetic-data", "--epochs=2")
    assert (code, f"{tmp_path}/mynet/train.py --synthetic-data --train-epochs=2" in out) == (0, True)
    assert "ERROR: " in cli("workload", "new", "mynet")[2]
    assert not (tmp_path / "mynet" / "mynet").exists()
    assert "is not a name" in cli("workload", "new", "../x")[2]


def test_a_folder_with_the_name_of_a_bundled_workload_is_not_submitted_without_a_word(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    assert cli("workload", "new", "lenet5", "--from", "lenet5")[0] == 0
    warning = "WARNING: lenet5 is the bundled workload, not the folder ./lenet5\nHINT: for the folder: hpcrun submit"
    assert warning in cli("submit", "lenet5", "--site", "slurm", "--dry-run")[2]
    assert warning in cli("submit", "lenet5", "--site", "slurm", "--dry-run", "--sweep", "batch-size=32,64")[2]
    assert warning not in cli("submit", "./lenet5", "--site", "slurm", "--dry-run")[2]


def test_options_of_other_programs_are_accepted_with_underscores(cli):
    words = ("--model_arch=resnet50", "--batch_size=64", "--train_epochs=2")
    _, out, err = cli("submit", "resnet50", "--site", "slurm", "--dry-run", "--", "--synthetic-data", *words)
    assert "train.py --synthetic-data --arch=resnet50 --batch-size=64 --train-epochs=2" in out, err
