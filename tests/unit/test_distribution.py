"""Warnings about scripts that train a separate model on each rank."""

import subprocess

import pytest

from hpcrun.distribution import find_framework, trains_separate_models
from hpcrun.frameworks import default_gpu_view
from hpcrun.workload import bundled_names

KERAS = "import keras\nmodel = keras.Sequential()\nmodel.fit([1], [2])\n"
INDEPENDENT = {
    "plain Keras": KERAS,
    "TensorFlow": "import tensorflow as tf\n",
    "PyTorch": "from torch import nn\n",
    "JAX": "import jax.numpy as jnp\n",
    "a comment and a string": f'"""Like horovod, by mpi4py."""\n# import hpcrun.train\nprint("hpcrun.train")\n{KERAS}',
    "a strategy for one process": "import tensorflow as tf\nstrategy = tf.distribute.MirroredStrategy()\n",
    "a variable's name": f"mpi4py = horovod = 1\n{KERAS}",
    "Python 2": "import keras\nprint 'horovod'\n",
    "a model of transformers": "import torch\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n",
    "Keras's distribution in one process": "import keras\nkeras.distribution.DataParallel()\n",
    "other modules of hpcrun": f"import hpcrun\n{KERAS}",
}
DISTRIBUTED = {
    "hpcrun.train": f"import hpcrun.train\n{KERAS}",
    "hpcrun.train.Model": f"from hpcrun.train import Model\n{KERAS}",
    "train from hpcrun": f"from hpcrun import train\n{KERAS}",
    "mpi4py": f"from mpi4py import MPI\n{KERAS}",
    "Horovod": f"import horovod.tensorflow.keras as hvd\n{KERAS}",
    "Horovod by name": f"import importlib\nhvd = importlib.import_module('horovod.keras')\n{KERAS}",
    "Horovod by a part of its name": f"import importlib\nhvd = importlib.import_module(f'horovod.{{lib}}')\n{KERAS}",
    "PyTorch": "import torch\ntorch.distributed.init_process_group()\n",
    "PyTorch, short": "import torch\nimport torch.distributed as dist\n",
    "PyTorch by getattr": "import torch\ngetattr(torch, 'distributed').init_process_group()\n",
    "Keras on JAX": "import keras\nkeras.distribution.initialize()\n",
    "Trainer of transformers": "import torch, transformers\ntransformers.Trainer()\n",
    "TRL": "import torch\nfrom trl import SFTTrainer\n",
    "JAX": "import jax\njax.distributed.initialize()\n",
    "Lightning": "import torch, lightning as L\n",
    "a strategy": "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n",
    "TF_CONFIG": "import os, tensorflow as tf\nos.environ['TF_CONFIG'] = '{}'\n"
    "tf.distribute.MultiWorkerMirroredStrategy()\n",
    "cluster resolver": "import tensorflow as tf\nfrom tensorflow.distribute import cluster_resolver\n"
    "tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=cluster_resolver.SlurmClusterResolver())\n",
    "rank number": f"import os\npart = int(os.environ['SLURM_PROCID'])\n{KERAS}",
    "no training": "import numpy as np\n",
    "Python 2, distributed": "import keras\nimport hpcrun.train\nprint 'x'\n",
}


def is_independent(folder, text, *argv):
    (folder / "train.py").write_text(text)
    return trains_separate_models(argv or ("python3", "train.py", "--lr=0.1"), folder)


@pytest.mark.parametrize("text", INDEPENDENT.values(), ids=INDEPENDENT)
def test_scripts_whose_ranks_train_independently(tmp_path, text):
    assert is_independent(tmp_path, text)


@pytest.mark.parametrize("text", DISTRIBUTED.values(), ids=DISTRIBUTED)
def test_scripts_whose_ranks_may_communicate(tmp_path, text):
    assert not is_independent(tmp_path, text)


def test_a_module_is_read_as_a_script(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/train.py").write_text("import keras\n")
    (tmp_path / "lab/__main__.py").write_text("import keras, mpi4py\n")
    assert trains_separate_models(("python", "-u", "-m", "lab.train"), tmp_path)
    assert not trains_separate_models(("python", "-m", "lab"), tmp_path)


def test_the_users_own_modules_are_read(tmp_path):
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "model.py").write_text("from .deep import ranks\n")
    (tmp_path / "parts" / "deep" / "__init__.py").write_text("")
    (tmp_path / "parts" / "deep" / "ranks.py").write_text("import hpcrun.train\n")
    assert not is_independent(tmp_path, f"from parts import model\n{KERAS}")
    (tmp_path / "parts" / "deep" / "ranks.py").write_text("import parts.model\n")
    assert is_independent(tmp_path, f"from parts import model\n{KERAS}")
    (tmp_path / "plain").mkdir()  # without __init__.py
    (tmp_path / "plain" / "ranks.py").write_text("import hpcrun.train\n")
    assert not is_independent(tmp_path, f"import plain.ranks\n{KERAS}")
    (tmp_path / "parts" / "deep" / "ranks.py").write_text(KERAS)
    assert is_independent(tmp_path, "from parts import model\n")


@pytest.mark.parametrize(
    "argv", [("hostname",), ("bash", "train.py"), ("torchrun", "train.py"), ("python3", "-m", "trains")]
)
def test_other_programs_are_not_read(tmp_path, argv):
    assert not is_independent(tmp_path, KERAS, *argv)


@pytest.mark.parametrize("name", bundled_names())
def test_bundled_workloads_cause_no_warning(cli, name, tmp_path):
    (tmp_path / "m.keras").write_bytes(b"PK\3\4")
    args = ["--", "--run", str(tmp_path / "m.keras")] if name == "evaluate" else []
    code, out, err = cli("submit", name, "-N", "2", "--ntasks-per-node", "2", "--site", "slurm", "--dry-run", *args)
    assert code == 0
    assert "worked alone" not in out
    assert "train a separate model" not in err


@pytest.mark.parametrize(
    ("ranks", "command"), [(2, ["train.py"]), (2, ["--", "python3", "train.py"]), (1, ["train.py"])]
)
def test_a_dry_run_and_its_script_warn(tmp_path, monkeypatch, cli, ranks, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(KERAS)
    target, program = ([command[0]], []) if command[0] != "--" else ([], command)
    code, out, err = cli("submit", *target, "-n", str(ranks), "--site", "slurm", "--dry-run", *program)
    assert code == 0
    warned = (
        "WARNING: each of the 2 ranks would train a separate model: the script names neither hpcrun.train nor" in err
    )
    assert warned == (ranks == 2)
    assert ("HINT: model = hpcrun.train.Model(model)" in err) == warned
    assert (" --trains-separate-models " in out) == warned
    subprocess.run(["bash", "-n"], input=out, text=True, check=True)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("import torch\n", "HINT: torch.distributed.init_process_group() and DistributedDataParallel share the work"),
        ("import jax, flax\n", "HINT: jax.distributed.initialize() connects the ranks (docs/frameworks.md); or"),
        (INDEPENDENT["a strategy for one process"], "HINT: --nodes=1 --ntasks-per-node=1 gives one process all GPUs"),
        ("from torch.nn import DataParallel\n", "all GPUs of a node, which DataParallel uses\n"),
        ("import torch, keras\n", "HINT: model = hpcrun.train.Model(model) shares the work between them"),
    ],
)
def test_the_hint_is_for_the_library_with_which_the_script_trains(tmp_path, monkeypatch, cli, text, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    assert hint in cli("submit", "train.py", "-n", "2", "--site", "slurm", "--dry-run")[2]


def test_the_script_is_not_run(tmp_path):
    assert is_independent(tmp_path, f"raise SystemExit(1)\n{KERAS}")


def test_a_strict_job_is_refused(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(KERAS)
    argv = ("submit", "train.py", "--site", "slurm", "--dry-run", "--strict")
    code, out, err = cli(*argv, "-n", "2")
    assert (code, out) == (2, "")
    assert "ERROR: --strict: each of the 2 ranks would train a separate model" in err
    assert "HINT: model = hpcrun.train.Model(model)" in err
    (tmp_path / "train.py").write_text(DISTRIBUTED["mpi4py"])
    code, out, _ = cli(*argv, "-n", "2")
    assert (code, " --strict" in out) == (0, True)
    code, out, _ = cli(*argv, "-n", "1")
    assert (code, " --strict" in out) == (0, False)


@pytest.mark.parametrize(
    ("text", "framework"),
    [
        (KERAS, "auto"),
        (DISTRIBUTED["hpcrun.train"], "hpcrun"),
        (DISTRIBUTED["mpi4py"], "auto"),
        (DISTRIBUTED["Horovod"], "horovod"),
        ("import horovod.torch as hvd, torch.distributed\n", "horovod"),
        (DISTRIBUTED["PyTorch"], "torch"),
        (DISTRIBUTED["Lightning"], "torch"),
        (DISTRIBUTED["Trainer of transformers"], "torch"),
        (DISTRIBUTED["TRL"], "torch"),
        (DISTRIBUTED["JAX"], "jax"),
        (DISTRIBUTED["Keras on JAX"], "jax"),
        (DISTRIBUTED["a strategy"], "tensorflow"),
        (DISTRIBUTED["cluster resolver"], "tensorflow"),
        (f"# hpcrun: framework=torch\n{KERAS}", "torch"),
        (f"#hpcrun: framework = none\n{DISTRIBUTED['PyTorch']}", "none"),
    ],
)
def test_the_framework_of_a_script(tmp_path, text, framework):
    (tmp_path / "train.py").write_text(text)
    argv = ("python3", "train.py")
    assert find_framework(argv, tmp_path, "auto") == framework
    assert find_framework(argv, tmp_path, "jax") == "jax"


def test_a_dry_run_says_which_framework_it_found(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    argv = ("submit", "train.py", "--site", "slurm", "--dry-run")
    (tmp_path / "train.py").write_text(DISTRIBUTED["a strategy"])
    code, out, err = cli(*argv, "-n", "2")
    assert code == 0
    assert "framework  tensorflow; variables of each rank: TF_CONFIG (--framework overrides it)\n" in err
    assert " --framework tensorflow " in out
    assert "would train a separate model" not in err
    code, out, err = cli(*argv, "-n", "1")
    assert (code, " --framework " in out, "framework  " in err) == (0, False, False)
    _, out, err = cli(*argv, "-n", "2", "--framework", "torch")
    assert ("framework  torch; " in err, " --framework " in out) == (True, False)
    (tmp_path / "train.py").write_text("# hpcrun: framework=tourch\n")
    code, out, err = cli(*argv, "-n", "2")
    assert (code, out) == (2, "")
    assert (
        "# hpcrun: framework=tourch in the script: hpcrun does not know this framework\n"
        "HINT: did you mean framework=torch? one of auto, hpcrun" in err
    )
    code, _, err = cli(*argv, "-n", "2", "--framework", "pytorch")
    assert (code, "ERROR: --framework=pytorch: hpcrun does not know this framework" in err) == (2, True)


def test_a_dry_run_warns_of_fit_under_a_strategy_that_keras_3_does_not_support(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    argv = ("submit", "train.py", "--site", "slurm", "--dry-run", "-n", "2")
    script = f"{DISTRIBUTED['a strategy']}\nmodel.fit(x, y)\n"
    for text, options, warns in [
        (script, (), True),
        (DISTRIBUTED["a strategy"], (), False),
        (script, ("-x", "TF_USE_LEGACY_KERAS=1"), False),
        (f"import tf_keras\n{script}", (), False),
    ]:
        (tmp_path / "train.py").write_text(text)
        code, _, err = cli(*argv, *options)
        assert (code, "fails with Keras 3\nHINT: -x TF_USE_LEGACY_KERAS=1" in err) == (0, warns)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (DISTRIBUTED["hpcrun.train"], "framework  hpcrun; the ranks find each other by MPI (--framework overrides it)"),
        (DISTRIBUTED["mpi4py"], "framework  mpi4py; the ranks find each other by MPI (--framework overrides it)"),
        (f"import mpi4py\n{DISTRIBUTED['hpcrun.train']}", "framework  hpcrun; the ranks find each other by MPI "),
        (KERAS, ""),
        ("print(1)\n", ""),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_dry_run_says_that_mpi_connects_the_ranks(tmp_path, monkeypatch, cli, text, line, ranks):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    code, _, err = cli("submit", "train.py", "--site", "slurm", "--dry-run", "-n", str(ranks))
    assert (code, "framework  " in err) == (0, bool(line) and ranks == 2)
    assert line in err or ranks == 1


@pytest.mark.parametrize(
    ("text", "option"),
    [
        (DISTRIBUTED["PyTorch"], "torch"),
        ("from torch.distributed import init_process_group\n", "torch"),
        (f"import os\nrank = int(os.environ.get('LOCAL_RANK', 0))\n{DISTRIBUTED['PyTorch']}", "torch"),
        (f"import os\nalone = 'RANK' not in os.environ\n{DISTRIBUTED['PyTorch']}", None),
        (f"import os\nrank = int(os.environ.get('LOCAL_RANK', -1))\n{DISTRIBUTED['PyTorch']}", None),
        (DISTRIBUTED["JAX"], "jax"),
        ("# hpcrun: framework=torch\nimport trainer\n", "torch"),
        (f"# hpcrun: framework=none\n{DISTRIBUTED['PyTorch']}", None),
        (DISTRIBUTED["Lightning"], None),  # finds out by itself that it is alone
        ("import torch.distributed as dist\nprint(dist.is_available())\n", None),
    ],
)
def test_a_single_rank_gets_the_variables_that_its_script_needs(tmp_path, monkeypatch, cli, text, option):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    code, out, err = cli("submit", "train.py", "--site", "slurm", "--dry-run", "-n", "1")
    assert (code, "framework  " in err, " --framework " in out) == (0, False, bool(option))
    assert f" --framework {option} " in out or not option
    _, out, _ = cli("submit", "train.py", "--site", "slurm", "--dry-run", "-n", "1", "--framework", "none")
    assert " --framework " not in out


def test_ranks_of_pytorch_without_a_gpu_of_their_own_are_warned_of(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site.toml").write_text(GPU_SITE)
    argv = ("submit", "train.py", "--site", "./site.toml", "--dry-run", "-N", "2", "--gpus-per-node", "2")
    warning = (
        "WARNING: 3 ranks per node have 2 GPUs: each rank of torch needs its own GPU\nHINT: --ntasks-per-node=2 starts"
    )
    for text, options, warns in [
        (DISTRIBUTED["PyTorch"], ["--ntasks-per-node", "3"], True),
        (DISTRIBUTED["PyTorch"], ["--ntasks-per-node", "2"], False),
        (DISTRIBUTED["PyTorch"], ["--ntasks-per-node", "3", "--no-gpu"], False),
        (DISTRIBUTED["PyTorch"], ["--ntasks-per-node", "3", "--gpus-visible", "rank"], False),
        (DISTRIBUTED["hpcrun.train"], ["--ntasks-per-node", "3"], False),
    ]:
        (tmp_path / "train.py").write_text(text)
        code, _, err = cli(*argv, *options)
        assert (code, warning in err) == (0, warns), (text, options, err)


GPU_SITE = """
extends = "slurm"
limits.gpus_per_node = 4
gpu.order = [3, 2, 1, 0]
"""


@pytest.mark.parametrize(
    ("name", "more", "options", "seen"),
    [
        ("hpcrun.train", "", [], 1),
        ("JAX", "", [], 1),
        ("PyTorch", "", [], 4),  # it selects cuda:LOCAL_RANK
        ("Horovod", "", [], 4),
        ("PyTorch", "", ["--gpus-visible", "rank"], 1),
        ("PyTorch", "", ["--framework", "none"], 1),
        ("PyTorch", 'gpu.visible = "rank"', [], 1),
        ("hpcrun.train", 'gpu.visible = "node"', [], 4),
        ("hpcrun.train", "", ["--gpus-visible", "node"], 4),
    ],
)
def test_scripts_that_select_a_gpu_by_the_local_rank_see_all_gpus(tmp_path, cli, name, more, options, seen):
    (tmp_path / "train.py").write_text(DISTRIBUTED[name])
    (tmp_path / "c.toml").write_text(GPU_SITE + more)
    argv = ("--site", str(tmp_path / "c.toml"), "-N", "2", "--gpus-per-node", "4", "--dry-run", *options)
    code, out, err = cli("submit", str(tmp_path / "train.py"), *argv)
    assert (code, f"--gpus 0,1,2,3 --gpus-per-rank {seen} --gpu-order 3,2,1,0" in out) == (0, True), out
    assert ("each sees all GPUs of its node" in err) == (seen == 4 and name != "hpcrun.train")
    assert "--gpu-bind" not in out


@pytest.mark.parametrize("variable", ["SLURM_LOCALID", "LOCAL_RANK", "SLURM_PROCID"])
def test_other_scripts_that_read_the_local_rank_see_all_gpus(tmp_path, cli, variable):
    text = f"import os, torch\nfrom mpi4py import MPI\ntorch.cuda.set_device(int(os.environ['{variable}']))\n"
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "c.toml").write_text(GPU_SITE)
    argv = ("--site", str(tmp_path / "c.toml"), "-N", "2", "--gpus-per-node", "4", "--dry-run")
    sees_all = variable != "SLURM_PROCID"
    _, out, err = cli("submit", str(tmp_path / "train.py"), *argv)
    assert f"--gpus-per-rank {4 if sees_all else 1} " in out
    line = (
        f"GPUs       each rank sees all GPUs of its node: the script reads {variable} (--gpus-visible overrides it)\n"
    )
    assert (line in err) == sees_all
    _, out, err = cli("submit", str(tmp_path / "train.py"), *argv, "--gpus-visible", "rank")
    assert ("--gpus-per-rank 1 " in out, "each rank sees" in err) == (True, False)


@pytest.mark.parametrize(
    ("call", "view"),
    [
        ("jax.distributed.initialize()", "rank"),  # each process would take all GPUs that it sees
        ("jax.distributed.initialize(local_device_ids=[local_rank])", "node"),
    ],
)
def test_scripts_of_jax_see_all_gpus_if_they_select_one(tmp_path, call, view):
    (tmp_path / "train.py").write_text(
        f"import os, jax\nlocal_rank = int(os.environ['SLURM_LOCALID'])\nprint(local_rank)\n{call}\n"
    )
    assert default_gpu_view("jax", ("python", "train.py"), tmp_path) == view


def test_slurm_binds_no_task_to_its_gpu_if_it_is_to_see_all(tmp_path, cli):
    (tmp_path / "train.py").write_text(DISTRIBUTED["PyTorch"])
    (tmp_path / "c.toml").write_text(f'{GPU_SITE}gpu.request = "gpus-per-task"\n')
    argv = ("submit", str(tmp_path / "train.py"), "--site", str(tmp_path / "c.toml"), "-N", "2", "--gpus-per-node", "4")
    assert " --gpu-bind=none " in cli(*argv, "--dry-run")[1]
    assert "--gpu-bind" not in cli(*argv, "--dry-run", "--gpus-visible", "rank")[1]
    code, _, err = cli(*argv, "--gpus-visible", "all")
    assert (code, "HINT: the choices: rank, node" in err) == (2, True)


@pytest.mark.parametrize(
    ("comment", "option"),
    [
        ("# hpcrun: nodes=2 gpus_per_node=4", "--nodes=2"),
        ("#hpcrun: --nodes 2", "--nodes=2"),
        ("# hpcrun: time: 1:00:00", "--time=1:00:00"),
        ("# hpcrun: framework: torch", ""),
        ("# hpcrun: framework=torch", ""),
        ("# hpcrun: this script runs on any cluster", ""),
        ("# started by hpcrun: see the docs", ""),
    ],
)
def test_an_option_in_a_comment_is_a_warning(tmp_path, monkeypatch, cli, comment, option):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(f"{comment}\nprint(1)\n")
    code, _, err = cli("submit", "train.py", "--site", "slurm", "--dry-run")
    assert (code, "in the script is ignored" in err) == (0, bool(option))
    assert f"HINT: give it on the command line: {option}\n" in err or not option
