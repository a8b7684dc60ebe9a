"""The library of job scripts as bash: what sites, modules, users and other jobs do to a shell changes no job."""

import os
import shlex
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from hpcrun import __version__, paths
from tests.shell.job_script import OPTIONS, Job
from tests.shell.process import BASH, count_orphans
from tests.waiting import wait_until

LAUNCHER = "sh -c 'for N in {}; do N=$N \"$@\" || exit; done' sh @rank"
"""Starts ranks in turn; their numbers replace the braces, and the rank number is the variable N."""


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


def test_the_library_has_the_version_of_the_package():
    assert f"\nhpcrun_version={__version__}\n" in (paths.shell_library() / "job.bash").read_text()


def test_a_library_of_another_version_is_one_error_and_starts_nothing(job):
    code, out, err = job(version="0.0.9")
    assert (code, out, err.count("\n"), job.run.exists()) == (1, "", 1, False)
    assert f"is of hpcrun {__version__}, but this script of 0.0.9" in err


def test_a_missing_library_is_one_error_and_starts_nothing(job):
    file = job.script()
    file.write_text(file.read_text().replace(f"hpcrun_library={paths.shell_library()}", "hpcrun_library=/nowhere"))
    done = subprocess.run([BASH, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n"), job.run.exists()) == (1, "", 1, False)
    assert "/nowhere/job.bash: No such file" in done.stderr


def test_an_unknown_option_is_one_error_and_starts_nothing(job):
    code, _, err = job(of_job="--shared")
    assert (code, err, job.run.exists()) == (1, "hpcrun: job.bash has no option --shared\n", False)


def test_an_option_without_its_value_is_an_error(job):
    code, _, err = job(of_job="--share-runs --python")
    assert (code, err, job.run.exists()) == (1, "hpcrun: option --python of job.bash needs a value\n", False)


@pytest.mark.parametrize(("scheduler", "option"), [("local", "--resubmit"), ("slurm", "--timeout"), ("other", "--not")])
def test_a_scheduler_has_its_own_options_only(job, scheduler, option):
    file = job.folder / "other.bash"
    parse = "--its-own) echo its own $2; hpcrun_option_words=2 ;; --flag) echo a flag ;; *) return 1 ;;"
    file.write_text(f"source $hpcrun_library/local.bash; hpcrun_scheduler_option() {{ case $1 in {parse} esac; }}\n")
    own = {"local": "--timeout", "slurm": "--max-requeue 2 --resubmit", "other": "--its-own '--share-runs 1' --flag"}
    job.scheduler = file if scheduler == "other" else scheduler
    code, out, err = job(of_job=f"{own[scheduler]} {option} --sweep")
    assert (code, err, job.run.exists()) == (1, f"hpcrun: job.bash has no option {option}\n", False)
    assert out == ("its own --share-runs 1\na flag\n" if scheduler == "other" else "")


def test_a_dry_run_script_creates_a_run_directory_with_a_copy_of_the_library(job):
    before = os.umask(0o002)
    try:
        code, out, err = job(words="@rank sh -c umask")
    finally:
        os.umask(before)
    assert (code, out.splitlines()[-1], err) == (0, "0002", "")
    names = {file.name for file in (job.run / "shell").iterdir()}
    assert names == {file.name for file in paths.shell_library().glob("*.*")}
    modes = {stat.S_IMODE(one.stat().st_mode) for one in (job.run, job.run / "shell", job.run / "logs")}
    assert modes == {0o700}
    assert {stat.S_IMODE(file.stat().st_mode) & 0o177 for file in (job.run / "shell").iterdir()} == {0}
    assert f"source {job.run}/shell/rank.bash" in (job.run / "rank.sh").read_text()


def test_the_launchers_command_line_contains_no_arguments_of_a_program_with_secrets(job):
    launcher = """sh -c 'printf "%s\\n" "$@" >$HPCRUN_RUN_DIR/line; exec "$@"' sh"""
    secret, file = """it's "$x" \\ ü*""", job.folder / "secrets.env"
    file.write_text(f"hpcrun_secret_1={shlex.quote(secret)}\nhpcrun_secret_2=other\n")
    code, out, err = job(
        f"hpcrun_load_secrets {file} 2",
        "IFS='0123456789 rank'; set -u; shopt -s nocasematch",
        words=f"""{launcher} @rank printf '<%s>' "--x=$hpcrun_secret_1 and $hpcrun_secret_2;" 'a b' '' $'\\t'""",
    )
    assert (code, out.splitlines()[-1]) == (0, f"<--x={secret} and other;><a b><><\t>"), err
    assert (job.run / "line").read_text() == f"bash\n{job.run}/rank.sh\n"
    assert not any(each in (job.run / "rank.sh").read_text() for each in ("ü", "other"))


@pytest.mark.parametrize(("of_job", "mode"), [("--share-runs", 0o644), ("", 0o600)])
def test_files_are_readable_by_others_only_in_shared_runs(job, of_job, mode):
    assert job("umask 022", of_job=of_job)[0] == 0
    written = [job.run / name for name in ("exit.json", "starts.jsonl", "rank.sh", "shell/job.bash")]
    assert {file.name: stat.S_IMODE(file.stat().st_mode) for file in written} == {file.name: mode for file in written}


def test_no_process_is_left_when_the_script_ends(job):
    """Slurm would wait for a second before it ends the job."""
    assert count_orphans(job.script(), environ={}) == (0, 0)


def test_the_runs_own_copy_of_the_library_is_used_from_then_on(job):
    job()
    with (job.run / "shell/local.bash").open("a") as file:
        file.write("echo its own copy\n")
    assert job()[1].startswith("its own copy\n")


def test_several_dry_run_scripts_can_be_submitted_by_hand_at_once(job):
    file = job.script()
    jobs = [subprocess.Popen([BASH, file], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(6)]
    assert [(one.communicate()[1], one.returncode) for one in jobs] == [(b"", 0)] * 6
    assert not list(job.run.glob(".shell*"))
    assert len(list((job.run / "shell").iterdir())) == len(list(paths.shell_library().glob("*.*")))


def test_a_task_of_a_sweep_has_the_library_in_the_sweeps_folder(job):
    code, _, err = job(of_job="--sweep", task="/job.3", environ={"HPCRUN_TASK": "3"})
    assert (code, err) == (0, "")
    assert (job.run / "shell/rank.bash").exists()
    assert not (job.run / "job.3/shell").exists()
    assert (job.run / "job.3/exit.json").exists()


def test_teardown_runs_after_failed_ranks(job):
    code, out, _ = job("set -e", words="@rank sh -c 'exit 5'", after="echo the end $?")
    assert (code, out.splitlines()[-1]) == (5, "the end 0")
    assert job.record()["reason"] == "the ranks ended with exit code 5"


@pytest.mark.parametrize("words", ["", "true", "env @ranks"])
def test_a_launch_line_without_the_rank_placeholder_is_an_error(job, words):
    code, _, err = job(words=words)
    assert (code, err.count("\n")) == (1, 1)
    assert "hpcrun: the launch line has no @rank" in err
    assert job.record()["reason"].startswith("the launch line has no @rank")


def test_only_the_first_rank_placeholder_is_replaced(job):
    assert job(words="env @rank echo @rank")[1].endswith("\n@rank\n")


@pytest.mark.parametrize(("environ", "rank"), [({"B": "3"}, "3"), ({"A": "2", "B": "3"}, "2"), ({"A": ""}, None)])
def test_the_rank_is_the_first_variable_that_is_set(job, environ, rank):
    code, out, err = job(options="--no-packages --rank 'A B' --local-rank B", environ={"B": "0", **environ})
    if rank:
        assert (code, out.startswith(f"[rank {rank}] ")) == (0, True)
    else:
        assert (code, "with the number of a rank (rank ''" in err) == (1, True)


SETTINGS = {
    "set -euo pipefail": "set -o | grep -E '^(errexit|nounset|pipefail) *on' | wc -l",
    "shopt -s nullglob failglob nocasematch": "shopt nullglob failglob nocasematch | grep -cw on",
    "set -fC": "case $- in *f*C*) echo yes ;; esac",
    "IFS=0r; set -a": 'printf "%s\\n" "$IFS$-" | grep -o 0r',
    "umask 077": "umask",
    "shopt -s expand_aliases; alias command='echo no' bash='echo no' exec='echo no'": "shopt expand_aliases",
    "set -o posix": "shopt -o posix",
    "trap 'echo error' ERR": "trap -p ERR",
    "IFS='0123456789 rank'": 'printf "%s" "${#IFS}"',
    "true() { :; }; readonly -f true; set -e": "set -o | grep -c '^errexit *on'",
}
"""What a site's setup may do, and what shows that it still holds at the site's end."""


@pytest.mark.parametrize("setting", SETTINGS)
def test_shell_options_do_not_change_a_job_and_are_kept(job, setting):
    shows = SETTINGS[setting]
    wanted = subprocess.run([BASH, "-c", f"{setting}\n{shows}"], capture_output=True, text=True, check=False).stdout
    code, out, err = job(setting, words="@rank sh -c 'echo ran; exit 7'", after=f"echo THE END; {shows}")
    assert (code, err) == (7, "")
    assert out.partition("THE END\n")[2] == wanted != ""
    assert out.count("\nran\n") == 1
    assert job.record()["exit_code"] == 7


COMMANDS = [
    "exec", "source", "command", "builtin", "unset", "trap", "kill", "wait", "echo", "printf", "read", "export",
    "local", "set", "shopt", "umask", "type", "eval", "return", "exit", "test", "[", "true", ":", ".", "declare",
    "shift", "bash", "sh", "date", "sed", "grep", "mkdir", "rm", "mv", "cp", "cat", "uname", "find", "tail", "tee",
    "sleep", "env", "stat", "ln", "chmod", "nice", "timeout",
]  # fmt: skip


def test_functions_of_the_site_replace_no_command(job):
    shadows = "; ".join(f"{name}() {{ /bin/echo {name} was called; return 0; }}" for name in COMMANDS)
    code, out, err = job(shadows, words="env @rank sh -c 'echo ran; exit 7'")
    assert (code, err, out.count("\nran\n"), "was called" in out) == (7, "", 1, False)
    assert job.record()["reason"] == "the ranks ended with exit code 7"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in {"source", "unset", ".", "[", ":"}])
def test_exported_functions_replace_no_command_of_the_ranks(job, name):
    shadow = f"set -a; {name}() {{ /bin/echo {name} was called; return 0; }}"
    code, out, _ = job(shadow, words="env @rank /bin/sh -c 'exit 7'")
    assert (code, "was called" in out) == (7, False)


@pytest.mark.parametrize("name", ["[", ".", "source", "shift", "unset", "echo", "mkdir"])
def test_exported_functions_replace_no_command_of_the_job(job, name):
    code, out, err = job(words="@rank sh -c 'exit 7'", environ={f"BASH_FUNC_{name}%%": "() { /bin/echo was called; }"})
    assert (code, "was called" in out + err, job.record()["exit_code"]) == (7, False, 7)


def test_set_allexport_does_not_export_hpcruns_variables(job):
    _, out, _ = job("set -a", words="@rank env")
    assert not [line for line in out.splitlines() if line.startswith("hpcrun_")]


@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_a_path_without_the_systems_folders_gets_them(job, path):
    code, out, err = job(f"export PATH={path}", words="@rank sh -c 'echo $PATH'")
    assert (code, job.record()["reason"]) == (0, "completed")
    assert out.endswith(f"\n{path}{':' * bool(path)}/usr/bin:/bin\n")
    assert err == f"hpcrun: WARNING: PATH={path} lacks the folders of the system; /usr/bin:/bin is added\n"


def test_the_end_is_recorded_although_no_program_starts(job, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rm").symlink_to("/bin/rm")
    code, _, err = job(f"export PATH={tmp_path}/bin")
    assert "bash: command not found" in err
    assert (code, job.record()["exit_code"]) == (127, 127)
    assert job.record()["reason"] == "the ranks ended with exit code 127"
    assert job.record()["ended"] >= job.record()["started"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_library_in_another_users_run_directory_is_not_used(job):
    shell = job.run / "shell"
    shell.mkdir(parents=True)
    for file in paths.shell_library().iterdir():
        (shell / file.name).symlink_to(file)
    (shell / "record.bash").unlink()
    (shell / "record.bash").write_text("echo somebody else; exit 9\n")
    os.chown(job.run, 65534, 65534)
    code, out, err = job()
    assert (code, out) == (1, "")
    assert "the run directory" in err
    assert "belongs to another user" in err


def test_ranks_have_all_of_the_users_variables_and_none_of_hpcruns_own(job):
    names = ["code", "answer", "record", "log", "name", "script", "count", "word", "rank", "launcher", "words", "first"]
    names += ["number", "line", "file", "i", "n", "x", "one", "before", "signal", "now"]
    exports = " ".join(f"{name}=the-{name}" for name in names)
    _, out, _ = job(f"export {exports}", words="@rank env")
    seen = dict(line.partition("=")[::2] for line in out.splitlines())
    assert {name: seen.get(name) for name in names} == {name: f"the-{name}" for name in names}
    assert not [name for name in seen if name.startswith("hpcrun_")]


def test_variables_of_a_surrounding_job_are_unset(job):
    outer = {"HPCRUN_TASK": "3", "HPCRUN_JOB_ID": "7", "HPCRUN_RANK": "9", "HPCRUN_RUN_DIR": "/outer"}
    flag = "--xla_gpu_cuda_data_dir=/s/train-20261122-170311-a4a2f852"
    spaced = flag.replace("/s/", '"/s p/') + '/cuda"'
    outer["XLA_FLAGS"] = f"--xla_a=1 {flag}/cuda --xla_b=2 {spaced} {flag}/train-20261122-170311-a4a2f852.3/cuda"
    file = job.script(words="@rank env")
    with job.started(file, **outer) as process:
        seen = dict(line.partition("=")[::2] for line in process.communicate()[0].splitlines())
    assert "HPCRUN_TASK" not in seen
    assert seen["XLA_FLAGS"] == "--xla_a=1 --xla_b=2"
    identity = {name: seen[name] for name in ("HPCRUN_JOB_ID", "HPCRUN_RANK", "HPCRUN_RUN_DIR")}
    assert identity == {"HPCRUN_JOB_ID": str(process.pid), "HPCRUN_RANK": "0", "HPCRUN_RUN_DIR": str(job.run)}
    assert job(words="@rank sh -c 'echo $XLA_FLAGS'", environ={"XLA_FLAGS": "--a --xla_gpu_cuda_data_dir=/usr/cuda"})[
        1
    ] == (f"[rank 0] host {os.uname().nodename}, CUDA_VISIBLE_DEVICES=unset\n--a --xla_gpu_cuda_data_dir=/usr/cuda\n")


def test_a_script_that_is_killed_is_recorded_though_its_ranks_live_on(job):
    words = "@rank sh -c 'trap : TERM; echo ready; while [ ! -e go ]; do sleep 0.05; done'"
    with job.started(job.script(f"cd {job.folder}", words=words)) as process:
        wait_until(lambda: "ready" in process.stdout.readline())
        begin = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: (job.run / "exit.json").read_text().strip())
        assert time.monotonic() - begin < 20
        (job.folder / "go").touch()
    assert (job.record()["exit_code"], job.record()["reason"]) == (137, "the job script was killed by SIGKILL")


def test_a_script_that_is_killed_while_it_is_being_stopped_keeps_the_reason(job):
    words = "@rank sh -c 'trap : TERM; echo ready; while [ ! -e go ]; do sleep 0.05; done'"
    with job.started(job.script(f"cd {job.folder}", words=words)) as process:
        wait_until(lambda: "ready" in process.stdout.readline())
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: "stopped" in (job.run / "exit.json").read_text())
        os.kill(process.pid, signal.SIGKILL)
        record = wait_until(lambda: (record := job.record())["ended"] and record)
        (job.folder / "go").touch()
    assert (record["exit_code"], record["reason"]) == (143, "stopped by SIGTERM")


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("INT", 2), ("HUP", 1)])
def test_a_stop_in_a_sites_strict_setup_is_recorded(job, name, number):
    setup = ("set -euo pipefail", "wait() { :; }; kill() { :; }", "echo ready", "while :; do sleep 0.05; done")
    with job.started(job.script(*setup)) as process:
        wait_until(lambda: "ready" in process.stdout.readline())
        os.kill(process.pid, getattr(signal, f"SIG{name}"))
        assert process.wait(60) == 128 + number
    record = job.record()
    assert (record["reason"], record["exit_code"], record["ended"] is not None) == (
        f"stopped by SIG{name}",
        128 + number,
        True,
    )


def test_secrets_come_from_their_file_or_from_the_environment(job):
    words = "@rank true"
    (job.folder / "secrets.env").write_text("hpcrun_secret_1='a b'\n")
    call = f"hpcrun_load_secrets {job.folder}/secrets.env"
    assert job(f"{call} 1", 'echo "<$hpcrun_secret_1>"', words=words)[1].startswith("<a b>\n")
    code, _, err = job(f"{call} 2", words=words)
    assert (code, err) == (1, f"hpcrun: hpcrun_secret_2 is not set: there is no {job.folder}/secrets.env\n")
    assert job(f"{call} 2", words=words, environ={"hpcrun_secret_2": "x"})[0] == 0


@pytest.mark.parametrize(("word", "says"), [
    ("reset", "modules cannot be reset (site key modules.reset)"),
    ("use /m", "modules in /m cannot be used (site key modules.use)"),
    ("load gcc/13", "module gcc/13 cannot be loaded (site key modules.load)"),
])  # fmt: skip
def test_a_module_that_does_not_load_ends_the_job_and_names_the_key(job, word, says):
    assert job(f"module() {{ [ \"$*\" = '{word}' ]; }}", f"hpcrun_module {word}")[0] == 0
    code, _, err = job("module() { false; }", f"hpcrun_module {word}")
    assert (code, err, job.record()["reason"]) == (1, f"hpcrun: {says}\n", says)


def test_a_hostfile_that_cannot_be_made_ends_the_job(job):
    code, _, err = job("hpcrun_python=false", "hpcrun_hostfile plain", of_job="--python-key conda.env")
    assert (code, "is hpcrun installed for this Python (site key conda.env)?" in err) == (1, True)
    assert not Path(job.run, "rank.sh").exists()


def test_the_file_of_another_packages_launcher_is_loaded_and_kept(job):
    file = job.folder / "other.bash"
    file.write_text("hpcrun_read_launcher() { hpcrun_code=7; }\n")
    options = f"{OPTIONS} --launcher {file}"
    assert job(options=options)[0] == 7
    assert (job.run / "shell/other.bash").read_bytes() == file.read_bytes()
    file.unlink()
    assert job(options=options)[0] == 7


def test_a_launcher_without_its_file_ends_the_job(job):
    code, _, err = job(options=f"{OPTIONS} --launcher /nowhere/other.bash")
    assert (code, job.record()["reason"]) == (
        1,
        "the functions of the launcher could not be loaded: /nowhere/other.bash",
    )
    assert "hpcrun: the functions of the launcher could not be loaded" in err


@pytest.mark.parametrize(("fails", "expected"), [("--ignores-failures", 143), ("", 0)])
def test_a_launcher_that_ignores_a_failure_is_ended(job, fails, expected):
    line = '{"rank": 1, "host": "n1", "exit_code": 3, "time": 1}'
    words = f"sh -c 'echo \"$1\" >$HPCRUN_RUN_DIR/failed.jsonl; sleep 12' sh '{line}' @rank"
    assert job(options=f"{OPTIONS} --ranks 2 {fails}", words=words)[0] == 3
    began, ended = (job.record()[key] for key in ("started", "ended"))
    assert (ended - began < 11) == bool(fails)


@pytest.mark.parametrize(
    ("others", "code", "rank"),
    [
        ([(2, "n2", 137, 100)], 137, "rank 2 on n2"),
        ([(2, "n2", 137, 101), (3, "n2", 1, 101)], 137, "rank 2 on n2"),
        ([(2, "n2", 137, 102)], 1, "rank 0 on n1"),  # a consequence
        ([(2, "n2", 139, 100)], 1, "rank 0 on n1"),
    ],
)
def test_a_killed_rank_caused_the_errors_of_ranks_that_lost_it(job, others, code, rank):
    line = '{{"rank": {}, "host": "{}", "exit_code": {}, "time": {}}}\\n'
    text = "".join(line.format(*entry) for entry in [(0, "n1", 1, 100), *others])
    words = "sh -c 'printf \"{}\" >$HPCRUN_RUN_DIR/failed.jsonl; exit 1' sh @rank".format(text.replace('"', '\\"'))
    assert job(options=f"{OPTIONS} --ranks 4", words=words)[0] == code
    assert rank in job.record()["reason"]


@pytest.mark.parametrize(("code", "expected"), [(14, 137), (3, 3)])  # 14: Open MPI's code for a lost rank
def test_a_killed_rank_is_known_if_its_end_killed_its_wrapper(job, code, expected):
    words = f"sh -c 'echo rank 1 on n2 >$HPCRUN_RUN_DIR/killed; exit {code}' sh @rank"
    assert job(options=f"{OPTIONS} --ranks 4", words=words)[0] == expected
    assert ("rank 1 on n2 was killed by SIGKILL" in job.record()["reason"]) == (expected == 137)


@pytest.mark.parametrize("fails", ["--ignores-failures", ""])
def test_a_second_launch_runs_after_the_first_has_failed(job, fails):
    words = "@rank sh -c 'sleep 7; touch \"$HPCRUN_RUN_DIR/second\"'"
    second = f"hpcrun_launch --launcher none {OPTIONS} {fails} -- {words}"
    assert job(words="@rank sh -c 'exit 3'", after=second)[0] == 3
    assert (job.run / "second").exists()


def test_ranks_that_train_separate_models_get_a_warning(job):
    options, launcher = f"{OPTIONS} --ranks 2 --rank N --trains-separate-models", LAUNCHER.format("0 1")
    warning = (
        "hpcrun: WARNING: each of the 2 ranks worked alone: the script uses neither hpcrun.train nor another library"
    )
    assert warning in job(options=options, words=f"{launcher} true")[2]
    assert (job.run / "alone").exists()
    assert "WARNING" not in job(options=options, words=f"{launcher} touch $HPCRUN_RUN_DIR/met")[2]


def test_a_job_of_which_only_some_ranks_complete_has_failed(job):
    options, launcher = f"{OPTIONS} --ranks 3 --rank N", 'env sh -c \'N=0 "$@"; N=2 "$@"\' sh @rank true'
    assert job(options=options, words=launcher)[0] == 1
    assert job.record()["reason"].endswith("env returned 0, but only 2 of 3 ranks did, and not rank 1")


def test_a_job_inside_a_rank_does_not_inherit_the_ranks_world(job):
    world = {"RANK": "3", "MASTER_ADDR": "n1"}
    assert "RANK=3" in job(words="@rank env", environ=world)[1].splitlines()  # the user's own
    _, out, _ = job(words="@rank env", environ={**world, "HPCRUN_RANK": "3"})
    assert "RANK=3" not in out.splitlines()
    assert "MASTER_ADDR" not in out


SMALLER = "rank 0 was in a world of 2 ranks, of 4 in the job"
ON_ONE_NODE = "rank 0 was in a world of 4 ranks on one of 2 nodes"


@pytest.mark.parametrize(
    ("words", "options", "reason"),
    [
        (f"sh -c 'echo {SMALLER} >$HPCRUN_RUN_DIR/alone'", "", SMALLER),
        (f"sh -c 'echo {ON_ONE_NODE} >$HPCRUN_RUN_DIR/alone'", "", ON_ONE_NODE),
        ("true", "--trains-separate-models", "each of the 4 ranks worked alone"),
        ("touch $HPCRUN_RUN_DIR/met", "--trains-separate-models", None),
    ],
)
def test_strict_jobs_fail_if_their_ranks_do_not_work_together(job, words, options, reason):
    words, options = f"{LAUNCHER.format('0 1 2 3')} {words}", f"{OPTIONS} --ranks 4 --rank N {options}"
    code, _, err = job(words=words, options=f"{options} --strict")
    assert (code, job.record()["exit_code"]) == ((1, 1) if reason else (0, 0))
    assert job.record()["reason"] == (f"{reason} (--strict)" if reason else "completed")
    assert (f"hpcrun: WARNING: {reason}" in err) == bool(reason)
    assert job(words=words, options=options)[0] == 0
