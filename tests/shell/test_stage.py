"""stage.bash as bash: the ranks of a node copy data to its local disk once, with real locks and signals."""

import json
import os
import re
import shlex
import signal
import subprocess
import tarfile
import zipfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests import bash_library
from tests.shell.process import BASH, bash
from tests.waiting import DEADLINE, wait_until

LIBRARY = Path(__file__).parents[2] / "hpcrun" / "shell"
HOSTILE = ["two words", 'it\'s "$HOME" `id`', "line\nbreak\n", "-rf", "[a]*?", "a:b,c", "\\n", "é"]


class Node:
    """The ranks of a job on one node.

    Args:
        folder: The folder of the run directory, the data, and the node-local disk.
    """

    def __init__(self, folder: Path) -> None:
        self.run, self.disk, self.data = folder / "run-1", folder / "local disk", folder / "data"
        self.job_folder = self.disk / self.run.name
        self.copies = self.job_folder / "staged"
        (self.run / "logs").mkdir(parents=True)
        self.data.mkdir()
        self.disk.mkdir()
        self.launches = 0

    def launch(self, *options):
        """Write rank.sh for a launch with options of hpcrun_stage; return its path."""
        self.launches += 1
        script = bash_library.source_commands() + 'hpcrun_stage "$@" || exit\nhpcrun_write_staging\n'
        script += f"echo source {LIBRARY}/rank.bash\n"
        argv = [BASH, "-c", script, "job.sh", self.disk, *options]
        environ = {**os.environ, "HPCRUN_RUN_DIR": str(self.run)}
        file = self.run / f"rank-{self.launches}.sh"
        file.write_text(subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout)
        return file

    def rank(self, launch, *argv, number=0, **variables):
        """Start a rank of a launch in a process group of its own."""
        environ = {"HPCRUN_RUN_DIR": self.run, "HPCRUN_RANK": number, "HPCRUN_LOCAL_RANK": number}
        environ |= {"HPCRUN_LAUNCHER": "srun", "HPCRUN_NTASKS": 9, "HPCRUN_SITE_NAME": "dee"}
        environ |= {"hpcrun_visible": "CUDA_VISIBLE_DEVICES", **variables}
        without = ("HPCRUN_", "hpcrun_", "CUDA_", "PMI")
        return bash(launch, *argv, environ=environ, without=without, stderr=subprocess.STDOUT)

    def ends(self, launch, *argv, **how):
        """Run a rank to its end; return its code and output."""
        with self.rank(launch, *argv, **how) as process:
            out, _ = process.communicate(timeout=DEADLINE)
        return process.returncode, out

    def failures(self):
        file = self.run / "failed.jsonl"
        return [json.loads(line)["rank"] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def blocked(node):
    """Return a launch whose first copy waits for ever to open the archive, and the archive."""
    archive = node.data / "slow.tar"
    os.mkfifo(archive)
    return node.launch("--unpack", "slow", archive), archive


def has_open(pid, folder):
    """Return whether a process has a folder open."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it may be closed by now
            if descriptor.readlink() == folder:
                return True
    return False


def write_tar(file, **texts):
    with tarfile.open(file, "w:gz" if file.suffix == ".gz" else "w") as archive:
        for name, text in texts.items():
            source = file.with_name(f"{name}.txt")
            source.write_text(text)
            archive.add(source, name)


def test_the_ranks_of_a_node_share_one_copy_and_the_last_removes_it(node):
    (node.data / "images").mkdir()
    (node.data / "images/1.png").write_text("pixels")
    launch = node.launch("--copy", node.data / "images")
    # each rank leaves when its file exists, so they end one after the other
    program = 'cat "$HPCRUN_STAGED/images/1.png"; echo; while [ ! -e "$0" ]; do sleep 0.02; done'
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(node.rank(launch, "sh", "-c", program, node.run / f"leave-{number}", number=number))
            for number in range(3)
        ]
        logs = [node.run / f"logs/rank-{number}.log" for number in range(3)]
        wait_until(lambda: [log.exists() and log.read_text() for log in logs] == ["pixels\n"] * 3)
        assert (node.job_folder.stat().st_mode & 0o777, (node.copies / "images").is_dir()) == (0o700, True)
        for number, rank in enumerate(ranks):
            assert node.copies.exists()
            (node.run / f"leave-{number}").touch()
            assert rank.wait(60) == 0
        out = "".join(rank.stdout.read() for rank in ranks)
    assert out.count(f"copies 1 MiB to {node.disk} on {os.uname().nodename}\n") == 1
    assert len(re.findall(rf"staged data in .*/staged on {os.uname().nodename} after \d+ s, \d+ MB/s\n", out)) == 1
    assert list(node.disk.iterdir()) == []
    assert (node.data / "images/1.png").read_text() == "pixels"


def test_a_process_that_a_program_left_does_not_keep_the_copy(node):
    (node.data / "x").touch()
    launch = node.launch("--copy", node.data / "x")
    with node.rank(launch, "sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.02; done', node.run / "leave") as last:
        wait_until((node.run / "logs/rank-0.log").exists)
        wait_until(lambda: "staged" in last.stdout.readline())
        leaves = 'sleep 600 >/dev/null 2>&1 & echo $! >"$0"'
        assert node.ends(launch, "sh", "-c", leaves, node.run / "pid", number=1)[0] == 0
        assert (node.copies / "x").exists()
        (node.run / "leave").touch()
        assert last.wait(60) == 0
    os.kill(int((node.run / "pid").read_text()), signal.SIGKILL)
    assert list(node.disk.iterdir()) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_names_with_special_characters_are_copied(node, name):
    (node.data / name).mkdir()
    (node.data / name / name).write_text("content")
    write_tar(node.data / f"{name}.tar.gz", one="packed")
    with zipfile.ZipFile(node.data / f"{name} 2.zip", "w") as archive:
        archive.writestr("two", "zipped")
    launch = node.launch(
        *("--copy", node.data / name),
        *("--unpack", f"{name} 1", node.data / f"{name}.tar.gz"),
        *("--unpack", f"{name} 2", node.data / f"{name} 2.zip"),
    )
    script = 'cd "$HPCRUN_STAGED" || exit; cat "./$0/$0" "./$0 1/one" "./$0 2/two"; ls -A | wc -l'
    code, out = node.ends(launch, "sh", "-c", script, name)
    assert (code, "contentpackedzipped" in out, list(node.disk.iterdir())) == (0, True, []), out


def test_a_copy_has_the_files_that_links_name_and_can_be_changed(node):
    folder = node.data / "images"
    (folder / "fixed").mkdir(parents=True)
    (node.data / "elsewhere").write_text("outside")
    (folder / "link").symlink_to("../elsewhere")
    (folder / "absolute").symlink_to(node.data / "elsewhere")
    (folder / "fixed/file").write_text("inside")
    (folder / "fixed").chmod(0o555)
    (node.data / "alias").symlink_to("images")
    script = 'cd "$HPCRUN_STAGED/alias" || exit; stat -c "%F %a" link absolute fixed; '
    script += "echo new >link; echo new >absolute; rm fixed/file"
    code, out = node.ends(node.launch("--copy", node.data / "alias"), "sh", "-c", script)
    assert (code, out.splitlines()[-3:-1], out.count("directory 755")) == (0, ["regular file 644"] * 2, 1), out
    assert ((node.data / "elsewhere").read_text(), (folder / "fixed/file").exists()) == ("outside", True)
    assert list(node.disk.iterdir()) == []


def test_an_archive_writes_nothing_outside_its_folder(node, tmp_path):
    archive = node.data / "evil.tar"
    with tarfile.open(archive, "w") as writer:
        for name in ("../../escaped", str(tmp_path / "absolute"), "link/through"):
            if name.startswith("link"):
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, str(node.data)
                writer.addfile(link)
            writer.addfile(tarfile.TarInfo(name))
    with zipfile.ZipFile(node.data / "evil.zip", "w") as writer:
        writer.writestr("../../escaped", "")
    before = sorted(tmp_path.rglob("*"))
    for name in ("evil.tar", "evil.zip"):
        node.ends(node.launch("--unpack", "evil", node.data / name), "true")
        ours = {node.run, *node.run.rglob("*")}
        assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path not in ours] == []


def test_missing_data_end_the_ranks_of_the_node(node):
    launch = node.launch("--copy", node.data / "no such")
    with node.rank(launch, "echo", "started") as first, node.rank(launch, "echo", "started", number=1) as second:
        outs = [process.communicate(timeout=DEADLINE)[0] for process in (first, second)]
    assert {first.returncode, second.returncode} == {1}
    message = f"hpcrun: error: data cannot be staged on {os.uname().nodename}: there is no "
    assert sum(message in out for out in outs) == 1
    assert ("started" in "".join(outs), len(node.failures()), list(node.disk.iterdir())) == (False, 1, [])


def test_a_rank_that_waits_for_a_copy_ends_if_it_fails(node, blocked):
    launch, archive = blocked
    with node.rank(launch, "echo", "started") as first:
        wait_until((node.copies / "slow").exists)
        with node.rank(launch, "echo", "started", number=1) as second:
            wait_until(lambda: has_open(second.pid, node.job_folder))
            archive.write_bytes(b"no archive")
            outs = [process.communicate(timeout=DEADLINE)[0] for process in (first, second)]
    assert ([first.returncode, second.returncode], node.failures(), list(node.disk.iterdir())) == ([1, 1], [0], [])
    assert "could not be copied" in outs[0]
    assert outs[1].endswith(" does not start its program: rank 0 has failed\n")


def test_data_larger_than_the_disk_are_not_copied(node):
    disk = os.statvfs(node.disk)
    sparse = node.data / "large"
    with sparse.open("wb") as stream:
        stream.truncate(disk.f_bavail * disk.f_frsize + 2**30)
    code, out = node.ends(node.launch("--copy", sparse), "echo", "started")
    assert (code, "started" in out, list(node.disk.iterdir())) == (1, False, [])
    assert f"MiB, and {node.disk} has " in out


def test_data_that_cannot_be_copied_end_the_rank_with_the_reason(node):
    (node.data / "broken.tar").write_text("no archive")
    code, out = node.ends(node.launch("--unpack", "broken", node.data / "broken.tar"), "echo", "started")
    assert (code, "started" in out, list(node.disk.iterdir())) == (1, False, [])
    assert "This does not look like a tar archive" in out
    assert f"{node.data}/broken.tar could not be copied to" in out


def test_another_users_folder_is_not_used(node, tmp_path):
    (tmp_path / "mine").mkdir()
    node.job_folder.symlink_to(tmp_path / "mine")
    (node.data / "x").touch()
    code, out = node.ends(node.launch("--copy", node.data / "x"), "echo", "started")
    assert (code, "is not this user's own" in out, list((tmp_path / "mine").iterdir())) == (1, True, [])


def test_other_files_in_the_jobs_folder_stay(node):
    node.job_folder.mkdir()
    (node.job_folder / "of the program").touch()
    (node.data / "x").touch()
    assert node.ends(node.launch("--copy", node.data / "x"), "true")[0] == 0
    assert [path.name for path in node.job_folder.iterdir()] == ["of the program"]


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130), ("USR2", 140)])
def test_a_signal_during_the_copy_ends_the_ranks(node, blocked, name, code):
    launch, _ = blocked
    with node.rank(launch, "echo", "started") as first, node.rank(launch, "echo", "started", number=1) as second:
        wait_until((node.copies / "slow").exists)
        first_lines = [first.stdout.readline(), second.stdout.readline()]
        for process in (first, second):  # only the wrappers get it, as with Slurm's cgroup plugin
            process.send_signal(signal.Signals[f"SIG{name}"])
        outs = [process.communicate(timeout=DEADLINE)[0] for process in (first, second)]
    assert ({first.returncode, second.returncode}, node.failures()) == ({code}, []), outs
    assert ("started" in "".join(outs), list(node.disk.iterdir())) == (False, []), first_lines


def test_another_rank_copies_after_the_first_was_killed(node, blocked):
    launch, archive = blocked
    with node.rank(launch, "true") as first:
        wait_until((node.copies / "slow").exists)
        with node.rank(launch, "sh", "-c", 'cat "$HPCRUN_STAGED/slow/x"', number=1) as second:
            second.stdout.readline()
            write_tar(node.data / "ready.tar", x="unpacked\n")
            (node.data / "ready.tar").replace(archive)
            os.killpg(first.pid, signal.SIGKILL)
            out, _ = second.communicate(timeout=DEADLINE)
    assert (second.returncode, (node.run / "logs/rank-1.log").read_text(), list(node.disk.iterdir())) == (
        0,
        "unpacked\n",
        [],
    ), out


def test_a_later_start_copies_again(node):
    (node.data / "x").write_text("old")
    with node.rank(node.launch("--copy", node.data / "x"), "sleep", "600") as rank:
        wait_until((node.run / "logs/rank-0.log").exists)
        wait_until(lambda: "staged" in rank.stdout.readline())
        os.killpg(rank.pid, signal.SIGKILL)
    assert (node.copies / "x").exists()
    (node.data / "x").write_text("new")
    code, out = node.ends(node.launch("--copy", node.data / "x"), "sh", "-c", 'cat "$HPCRUN_STAGED/x"')
    assert (code, out.endswith("new"), list(node.disk.iterdir())) == (0, True, [])


def test_a_relative_folder_is_refused(node):
    script = f"{bash_library.source_commands()}hpcrun_stage local --copy {shlex.quote(str(node.data))}"
    completed = subprocess.run([BASH, "-c", script], cwd=node.disk, capture_output=True, text=True, check=False)
    assert (completed.returncode, list(node.disk.iterdir())) == (1, [])
    assert completed.stderr == "FAIL the node-local folder local is not an absolute path (site key local_scratch)\n"


@pytest.mark.parametrize(
    ("mode", "owner", "reason"),
    [(0o777, 0, "everybody may replace files in {}"), (0o700, 65534, "nobody owns {}"), (0o1777, 0, None)],
)
def test_a_disk_where_others_can_replace_the_copy_is_not_used(node, mode, owner, reason):
    (node.data / "x").touch()
    node.disk.chmod(mode)
    os.chown(node.disk, owner, -1)
    code, out = node.ends(node.launch("--copy", node.data / "x"), "true")
    assert (code, list(node.disk.iterdir())) == (1 if reason else 0, [])
    assert reason is None or reason.format(node.disk) in out, out


def test_a_link_in_place_of_the_jobs_folder_protects_its_target(node):
    (node.data / "x").touch()
    precious = node.data / "important/staged/precious"
    precious.parent.mkdir(parents=True)
    precious.touch()
    script = f"cd {shlex.quote(str(node.disk))} && mv {node.run.name} moved && "
    script += f"ln -s {shlex.quote(str(node.data / 'important'))} {node.run.name}"
    node.ends(node.launch("--copy", node.data / "x"), "sh", "-c", script)
    assert precious.exists()
