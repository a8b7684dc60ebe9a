"""What jobs export for XLA and TensorFlow, on CUDA as wheels, conda, modules and distributions arrange it.

bash evaluates what `hpcrun cuda --shell` prints, and then the files are where XLA looks for them.
"""

import json
import os
import shlex
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

import hpcrun
from hpcrun import submission
from hpcrun.cuda import locations, xla_flags
from hpcrun.cuda.job_setup import CudaKeys, plan_setup
from hpcrun.doctor import discover_mpi as survey
from hpcrun.doctor import installed_software as doctor
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from tests import bash_library

LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
ROOT = Path(__file__).parents[2]
FLAG = "--xla_gpu_cuda_data_dir="


class Machine:
    """A made-up file system and environment."""

    def __init__(self, folder):
        self.folder = folder
        self.prefix = folder / "python"
        self.site = self.prefix / "lib/python3.11/site-packages"
        self.environ = {"PATH": f"{folder}/bin"}
        self.system = [f"{folder}/usr/local/cuda"]

    def add(self, *files):
        """Make files that say where they are; programs among them can be run."""
        for name in files:
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            program = file.parent.name == "bin"
            file.write_text(f"#!/bin/sh\necho {name}\n" if program else name)
            file.chmod(0o755 if program else 0o644)

    def plan(self, keys=CudaKeys(), **environ):
        self.environ |= environ
        packages = locations.find_site_packages(self.environ, [str(self.site)], self.prefix)
        found = locations.find_locations(self.environ, packages, self.prefix, self.system)
        return plan_setup(keys, self.environ, packages, found, self.folder / "run dir/cuda")

    def run(self, keys=CudaKeys(), **environ):
        """Let bash do it, and return what it printed, what XLA finds, and the variables."""
        shell = self.plan(keys, **environ).shell()
        show = 'printf "%s\\0" "${XLA_FLAGS-}" "${LD_LIBRARY_PATH-}"'
        path = f"{self.environ['PATH']}:/usr/bin:/bin"  # what is on this machine has no part in it, but mkdir and ln
        done = subprocess.run(
            ["bash", "-uc", f"{shell}echo; {show}"],
            env={**self.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        log, _, variables = done.stdout.rpartition("\n")
        flags, libraries, _ = variables.split("\0")
        return Seen(self.folder, log + done.stderr, flags, libraries.split(":") if libraries else [])


class Seen:
    def __init__(self, folder, log, flags, libraries):
        self.log, self.flags, self.libraries = log, flags, libraries
        self.data_dir = next((Path(f.removeprefix(FLAG)) for f in shlex.split(flags) if f.startswith(FLAG)), None)
        self.libdevice = self.ptxas = None
        if self.data_dir and (self.data_dir / LIBDEVICE).exists():
            self.libdevice = (self.data_dir / LIBDEVICE).read_text()
        if self.data_dir and (self.data_dir / "bin/ptxas").exists():
            self.ptxas = subprocess.check_output([self.data_dir / "bin/ptxas"], text=True).strip()


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


WHEELS = "python/lib/python3.11/site-packages/nvidia"


# layout: its files, the variables that lead there, and the root of both files where XLA can take it as it is
@pytest.mark.parametrize(("files", "environ", "root"), [
    ([f"{WHEELS}/cuda_nvcc/{LIBDEVICE}", f"{WHEELS}/cuda_nvcc/bin/ptxas"], {}, f"{WHEELS}/cuda_nvcc"),
    ([f"{WHEELS}/cu13/{LIBDEVICE}", f"{WHEELS}/cu13/bin/ptxas"], {}, f"{WHEELS}/cu13"),
    ([f"conda/{LIBDEVICE}", "conda/bin/ptxas"], {"CONDA_PREFIX": "conda"}, "conda"),
    ([f"conda/lib/{LIBDEVICE}", "conda/bin/ptxas"], {"CONDA_PREFIX": "conda"}, None),
    (["conda/lib/libdevice.10.bc", "conda/bin/ptxas"], {"CONDA_PREFIX": "conda"}, None),
    ([f"python/{LIBDEVICE}", "python/bin/ptxas", "python/conda-meta/history"], {}, "python"),
    ([f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas"], {"CUDA_HOME": "sw/cuda"}, "sw/cuda"),
    ([f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas"], {"CUDA_PATH": "sw/cuda"}, "sw/cuda"),
    ([f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas"], {"CUDA_ROOT": "sw/cuda"}, "sw/cuda"),
    ([f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas"], {"EBROOTCUDA": "sw/cuda"}, "sw/cuda"),
    ([f"hpc/cuda/12.4/{LIBDEVICE}", "hpc/cuda/12.4/bin/ptxas"], {"NVHPC_ROOT": "hpc"}, "hpc/cuda/12.4"),
    ([f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas", "sw/cuda/bin/nvcc"], {"PATH": "sw/cuda/bin"}, "sw/cuda"),
    ([f"usr/local/cuda/{LIBDEVICE}", "usr/local/cuda/bin/ptxas"], {}, "usr/local/cuda"),
    ([f"usr/local/cuda/{LIBDEVICE}", "bin/ptxas"], {}, None),  # Debian's: the programs are in /usr/bin
    (["usr/local/cuda/libdevice/libdevice.10.bc", "bin/ptxas"], {}, None),  # an older Debian's
], ids=lambda value: None if isinstance(value, dict) else str(value))  # fmt: skip
def test_xla_finds_libdevice_and_ptxas_of_each_layout(machine, files, environ, root):
    machine.add(*files)
    seen = machine.run(**{name: str(machine.folder / value) for name, value in environ.items()})
    assert (seen.libdevice, seen.ptxas) == tuple(files[:2])
    assert seen.data_dir == machine.folder / (root or "run dir/cuda")
    assert seen.log.startswith("hpcrun: XLA gets libdevice.10.bc ")
    assert len(seen.log.splitlines()) == 1


def test_folders_closest_to_the_jobs_python_come_first(machine):
    order = [f"{WHEELS}/cuda_nvcc", f"{WHEELS}/cu13", "conda", "sw/home", "sw/eb", "hpc/cuda/12.10", "hpc/cuda/12.9"]
    order += ["sw/path", "usr/local/cuda"]
    machine.add(*(f"{root}/{file}" for root in order for file in (LIBDEVICE, "bin/ptxas")), "sw/path/bin/nvcc")
    names = {"CONDA_PREFIX": "conda", "CUDA_HOME": "sw/home", "EBROOTCUDA": "sw/eb", "NVHPC_ROOT": "hpc"}
    machine.environ |= {name: f"{machine.folder}/{path}" for name, path in names.items()}
    machine.environ["PATH"] = f"{machine.folder}/sw/path/bin"
    chosen = []
    for _ in order:
        seen = machine.run()
        assert seen.ptxas == f"{seen.data_dir.relative_to(machine.folder)}/bin/ptxas"
        chosen.append(str(seen.data_dir.relative_to(machine.folder)))
        shutil.rmtree(seen.data_dir)
    assert chosen == order


@pytest.mark.parametrize(("built", "root"), [("12.5.1", "sw/cuda"), ("13.0", f"{WHEELS}/cu13")])
def test_wheels_for_another_cuda_than_tensorflows_come_last(machine, built, root):
    build_info = f"{WHEELS}/../tensorflow/python/platform/build_info.py"
    machine.add(
        build_info, *(f"{one}/{file}" for one in (f"{WHEELS}/cu13", "sw/cuda") for file in (LIBDEVICE, "bin/ptxas"))
    )
    (machine.folder / build_info).write_text(
        f"build_info = OrderedDict([('cuda_version', '{built}'), ('is_cuda_build', True)])"
    )
    assert machine.run(CUDA_HOME=f"{machine.folder}/sw/cuda").data_dir == machine.folder / root
    machine.environ.pop("CUDA_HOME")
    assert machine.run().data_dir == machine.folder / WHEELS / "cu13"


def test_unreadable_folders_are_skipped(machine, monkeypatch):
    machine.add(f"conda/{LIBDEVICE}", f"usr/local/cuda/{LIBDEVICE}")
    exists = Path.exists

    def refused(path):  # root, whom tests may run as, may read everything
        if "conda" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", refused)
    assert machine.run(CONDA_PREFIX=f"{machine.folder}/conda").libdevice == f"usr/local/cuda/{LIBDEVICE}"


def test_two_paths_of_one_root_are_listed_once(machine):
    machine.add(f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas")
    names = dict.fromkeys(("CUDA_HOME", "EBROOTCUDA"), f"{machine.folder}/sw/cuda")
    assert "(CUDA_HOME)" in machine.run(**names).log


def test_files_of_two_roots_are_linked_into_one_folder(machine):
    machine.add("conda/lib/libdevice.10.bc", "sw/cuda/bin/ptxas", "sw/cuda/bin/nvlink", "sw/cuda/bin/fatbinary")
    before = sorted(machine.folder.rglob("*"))
    seen = machine.run(CONDA_PREFIX=f"{machine.folder}/conda", CUDA_HOME=f"{machine.folder}/sw/cuda")
    assert (seen.libdevice, seen.ptxas) == ("conda/lib/libdevice.10.bc", "sw/cuda/bin/ptxas")
    assert {file.name for file in (seen.data_dir / "bin").iterdir()} == {"ptxas", "nvlink", "fatbinary"}
    assert [f for f in sorted(machine.folder.rglob("*")) if "run dir" not in str(f)] == before
    assert "(CONDA_PREFIX)" in seen.log
    assert "(CUDA_HOME)" in seen.log
    assert machine.run().ptxas == seen.ptxas  # once more, as in a job that is requeued


def test_existing_xla_flags_are_kept(machine):
    machine.add(f"usr/local/cuda/{LIBDEVICE}", "usr/local/cuda/bin/ptxas")
    assert machine.run().flags == f"{FLAG}{machine.folder}/usr/local/cuda"
    assert machine.run(XLA_FLAGS="--a=b --c").flags == f"--a=b --c {FLAG}{machine.folder}/usr/local/cuda"
    mine = f"--a {FLAG}/my/own"
    seen = machine.run(CudaKeys(data_dir="/else"), XLA_FLAGS=mine)
    assert seen.flags == mine
    assert "already names a CUDA folder, which is kept" in seen.log


@pytest.mark.parametrize(("given", "root"), [
    (f"{FLAG}/a", "/a"),
    (f" --b='x {FLAG}/no' {FLAG}/a\t--c", "/a"),
    (f"{FLAG}/a {FLAG}/b", "/b"),  # the last counts
    (f'{FLAG}"/two words/\\"q\\" \\\\"', '/two words/"q" \\'),
    (f"{FLAG}'/two words\\'", "/two words\\"),
    (f"{FLAG}/a'b", "/a'b"),
    (f"{FLAG}", None),
    (f"--x{FLAG}/no", None),
    (f"--x={FLAG}/no", None),
    (f"/a/file {FLAG}/no", None),
    ("", None),
])  # fmt: skip
def test_the_data_dir_is_parsed_from_flags_as_xla_parses_it(given, root):
    assert xla_flags.parse_data_dir(given) == (root and Path(root))


@pytest.mark.parametrize("name", ["two words", "it's", 'a "b" \\ c', "'q'"])
def test_the_data_dir_of_existing_flags_is_searched(machine, name):
    machine.add(f"{name}/{LIBDEVICE}", f"{name}/bin/ptxas", f"usr/local/cuda/{LIBDEVICE}", "usr/local/cuda/bin/ptxas")
    root = machine.folder / name
    plan = machine.plan(XLA_FLAGS=f"--x {xla_flags.format_data_dir(root)}")
    assert (plan.libdevice, plan.ptxas, plan.variables) == (root / LIBDEVICE, root / "bin/ptxas", {})
    assert plan.searched[0].why == "XLA_FLAGS"


def test_a_data_dir_in_flags_without_libdevice_is_reported(machine):
    machine.add(f"usr/local/cuda/{LIBDEVICE}", "usr/local/cuda/bin/ptxas", f"{WHEELS}/../tensorflow/__init__.py")
    plan = machine.plan(XLA_FLAGS=f"{FLAG}/no/cuda")
    assert (plan.libdevice, plan.ptxas) == (None, machine.folder / "usr/local/cuda/bin/ptxas")
    assert plan.warnings == (f"{FLAG}/no/cuda, as XLA_FLAGS has it, has no {LIBDEVICE}",)


def test_doctor_and_site_init_find_the_cuda_that_a_job_uses(machine, cli, monkeypatch):
    machine.add("sw/tools/bin/ptxas", f"sw/cuda/{LIBDEVICE}", "sw/cuda/bin/ptxas")
    world = {"CUDA_HOME": f"{machine.folder}/sw/tools", "CUDA_DIR": f"{machine.folder}/sw/cuda"}
    for name in ("XLA_FLAGS", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    for name, value in world.items():
        monkeypatch.setenv(name, value)
    output = json.loads(cli("cuda", "--site", "local", "--json")[1])
    found = {"libdevice": f"{machine.folder}/sw/cuda/{LIBDEVICE}", "ptxas": f"{machine.folder}/sw/cuda/bin/ptxas"}
    assert {name: output[name] for name in found} == found
    assert doctor.find_cuda_files() == found
    assert survey.find_cuda_root(world) == ("${CUDA_DIR}", machine.folder / "sw/cuda")


def test_site_init_does_not_propose_cuda_of_a_users_environment(machine):
    machine.add(f"conda/{LIBDEVICE}", f"hpc/cuda/12.4/{LIBDEVICE}", f"usr/local/cuda/{LIBDEVICE}")
    conda = {"CONDA_PREFIX": f"{machine.folder}/conda"}
    of_system = survey.find_cuda_root(conda, machine.system)
    assert of_system is not None
    assert of_system[0] == f"{machine.folder}/usr/local/cuda"
    of_nvhpc = survey.find_cuda_root({**conda, "NVHPC_ROOT": f"{machine.folder}/hpc"})
    assert of_nvhpc is not None
    assert of_nvhpc[0] == f"{machine.folder}/hpc/cuda/12.4"
    assert survey.find_cuda_root(conda, ()) is None


def test_xla_flags_that_name_a_flag_file_are_kept(machine):
    machine.add(f"usr/local/cuda/{LIBDEVICE}", "usr/local/cuda/bin/ptxas", f"{WHEELS}/../tensorflow/__init__.py")
    seen = machine.run(XLA_FLAGS="/home/me/flags")
    assert seen.flags == "/home/me/flags"
    assert "WARNING: XLA_FLAGS=/home/me/flags is a file of flags" in seen.log


@pytest.mark.parametrize("name", ["two words", "it's", 'a "b" \\ c', "tab\there", "$HOME `id`"])
def test_any_folder_name_reaches_xla_flags(machine, name):
    machine.add(f"{name}/{LIBDEVICE}")
    plan = machine.plan(CudaKeys(data_dir=f"{machine.folder}/{name}"))
    value = plan.variables["XLA_FLAGS"].removeprefix(FLAG)
    # xla/parse_flags_from_env.h: up to a blank, or in double quotes with backslashes before what is literal
    read = value[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\0", "\\") if value[0] == '"' else value
    assert value[0] == '"' or not any(blank in value for blank in " \t")
    assert read == f"{machine.folder}/{name}"
    exported = subprocess.check_output(["bash", "-c", f'{plan.shell()}printf %s "$XLA_FLAGS"'], text=True)
    assert exported.endswith(value)


def test_the_sites_data_dir_comes_first(machine):
    files = ["own/my.bc", "own/ptxas-12.4", "other/bin/ptxas"]
    machine.add(*files, f"{WHEELS}/cuda_nvcc/{LIBDEVICE}", f"{WHEELS}/cuda_nvcc/bin/ptxas", f"other/{LIBDEVICE}")
    (machine.folder / "own/ptxas-12.4").write_text("#!/bin/sh\necho mine")
    (machine.folder / "own/ptxas-12.4").chmod(0o755)
    gone = ("${NOT_SET}/x", "/nowhere/libdevice.10.bc", "${OWN}/my.bc")
    seen = machine.run(CudaKeys(libdevice=gone, ptxas=("${OWN}/ptxas-12.4",)), OWN=f"{machine.folder}/own")
    assert (seen.libdevice, seen.ptxas) == ("own/my.bc", "mine")
    assert "(cuda.libdevice)" in seen.log
    assert "(cuda.ptxas)" in seen.log
    seen = machine.run(CudaKeys(data_dir="${OTHER}"), OTHER=f"{machine.folder}/other")
    assert seen.data_dir == machine.folder / "other"
    seen = machine.run(CudaKeys(data_dir="${OTHER}", ptxas=("${OWN}/ptxas-12.4",)))
    assert (seen.libdevice, seen.ptxas) == (f"other/{LIBDEVICE}", "mine")


def test_a_data_dir_without_libdevice_is_reported_and_the_search_goes_on(machine):
    machine.add("other/bin/ptxas", f"{WHEELS}/cuda_nvcc/{LIBDEVICE}")
    key = f"{machine.folder}/other"
    seen = machine.run(CudaKeys(data_dir=key))
    assert (seen.libdevice, seen.ptxas) == (f"{WHEELS}/cuda_nvcc/{LIBDEVICE}", "other/bin/ptxas")
    assert f"WARNING: cuda.data_dir = {key} has no {LIBDEVICE}" in seen.log
    assert machine.run(CudaKeys(data_dir="/nowhere", search=False)).data_dir == Path("/nowhere")


def test_no_search_uses_only_the_site_keys(machine):
    machine.add(f"{WHEELS}/cuda_nvcc/{LIBDEVICE}", f"{WHEELS}/cuda_nvcc/bin/ptxas", f"{WHEELS}/cudnn/lib/libcudnn.so.9")
    machine.add("module/libcudnn.so.9", "own/my.bc")
    plan = machine.plan(CudaKeys(search=False), LD_LIBRARY_PATH=f"{machine.folder}/module")
    assert (plan.shell(), plan.searched) == ("", ())
    seen = machine.run(CudaKeys(libdevice=(f"{machine.folder}/own/my.bc",), search=False))
    assert (seen.libdevice, seen.ptxas) == ("own/my.bc", None)
    assert "WARNING" not in seen.log


def test_an_unset_variable_in_the_data_dir_is_explained_by_why(machine):
    with pytest.raises(HpcrunError) as error:
        machine.plan(CudaKeys(data_dir="${CUDA_HOME}/x"))
    assert error.value.message == "CUDA_HOME: site key cuda.data_dir names it, and it is not set"
    assert error.value.hint is not None
    assert "-x CUDA_HOME=FOLDER" in error.value.hint


@pytest.mark.parametrize(("package", "warned"), [("tensorflow", True), ("jaxlib", True), ("torch", False)])
def test_missing_cuda_files_are_reported_only_where_xla_is_installed(machine, package, warned):
    machine.add(f"{WHEELS}/../{package}/__init__.py")
    seen = machine.run()
    assert (seen.flags, seen.libraries) == ("", [])
    assert ("WARNING: no libdevice.10.bc for XLA" in seen.log) == warned
    assert ("WARNING: no ptxas for XLA" in seen.log) == warned


LIBRARIES = [
    f"{WHEELS}/../jaxlib/__init__.py",
    f"{WHEELS}/cublas/lib/libcublas.so.12",
    f"{WHEELS}/cudnn/lib/libcudnn.so.9",
]
OURS = [f"{WHEELS}/cublas/lib", f"{WHEELS}/cudnn/lib"]


def libraries(machine, *given):
    seen = machine.run(LD_LIBRARY_PATH=":".join(str(machine.folder / one) if one else one for one in given))
    log = "".join(line for line in seen.log.splitlines() if "LD_LIBRARY_PATH" in line)
    return [str(Path(one).relative_to(machine.folder)) if one else one for one in seen.libraries], log


def test_libraries_of_a_module_do_not_replace_those_of_pip(machine):
    machine.add(*LIBRARIES, "module/libcudnn.so.9", "old/libcudnn.so.8", "old/libcublas.so.11")
    assert libraries(machine, "old", "") == (["old", ""], "")  # what has another name is never loaded
    path, log = libraries(machine, "old", "", "module", "old")
    assert path == [*OURS, "old", "module"]  # no empty entry, which would mean the current directory; none twice
    assert f"or {machine.folder}/module/libcudnn.so.9 would be loaded instead" in log
    assert libraries(machine, *OURS, "module") == ([*OURS, "module"], "")
    assert libraries(machine, "module", *OURS)[0] == [*OURS, "module"]


def test_the_clusters_nccl_is_kept(machine):
    machine.add(*LIBRARIES, f"{WHEELS}/nccl/lib/libnccl.so.2", "module/libnccl.so.2")
    assert libraries(machine, "module") == (["module"], "")
    machine.add("module/libcublas.so.12")
    assert libraries(machine, "module")[0] == [*OURS, "module"]


def test_pytorch_needs_no_library_path(machine):
    machine.add(*LIBRARIES[1:], f"{WHEELS}/../torch/__init__.py", "module/libcudnn.so.9")
    assert libraries(machine, "module") == (["module"], "")


def test_condas_tensorflow_keeps_condas_libraries(machine):
    machine.add(*LIBRARIES, "conda/lib/libcudnn.so.9", f"{WHEELS}/../tensorflow-2.18.0.dist-info/INSTALLER")
    (machine.site / "tensorflow-2.18.0.dist-info/INSTALLER").write_text("conda\n")
    assert libraries(machine, "conda/lib") == (["conda/lib"], "")
    (machine.site / "tensorflow-2.18.0.dist-info/INSTALLER").write_text("pip\n")
    assert libraries(machine, "conda/lib")[0] == [*OURS, "conda/lib"]


def shared_library(runpath):
    """Return the least of a shared library that tells a RUNPATH: headers, the dynamic section, its strings."""
    strings = b"\0" + runpath.encode() + b"\0"
    entries = struct.pack("<6q", 29, 1, 5, 0x10000 + 64 + 2 * 56 + 48, 0, 0)  # RUNPATH, STRTAB, end
    load = struct.pack("<2I6Q", 1, 5, 0, 0x10000, 0x10000, 1000, 1000, 4096)
    dynamic = struct.pack("<2I6Q", 2, 6, 64 + 2 * 56, 0x10000 + 64 + 2 * 56, 0, 48, 48, 8)
    head = b"\x7fELF\2\1\1" + bytes(9) + struct.pack("<2HI3QI6H", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    return head + load + dynamic + entries + strings


# What TensorFlow's wheels name: all up to 2.20, but for those before 2.14 and 2.16.1; 2.21.0 all but cuSOLVER.
@pytest.mark.parametrize(("named", "missed"), [
    (["cublas", "cudnn", "cusolver"], []),
    (["cublas", "cudnn"], ["cusolver"]),
    (["cuda_runtime"], ["cublas", "cudnn", "cusolver"]),
    ([], ["cublas", "cudnn", "cusolver"]),
])  # fmt: skip
def test_a_tensorflow_that_ignores_its_wheels_gets_a_library_path(machine, named, missed):
    machine.add(*LIBRARIES, f"{WHEELS}/cusolver/lib/libcusolver.so.11", f"{WHEELS}/nvjitlink/lib/libnvJitLink.so.12")
    machine.add(
        f"{WHEELS}/../tensorflow/libtensorflow_framework.so.2", f"{WHEELS}/../tensorflow-2.21.0.dist-info/RECORD"
    )
    library = machine.site / "tensorflow/libtensorflow_framework.so.2"
    library.write_bytes(
        shared_library(":".join(f"$ORIGIN/{up}/nvidia/{one}/lib" for one in named for up in ("..", "../..")))
    )
    path, log = libraries(machine, "mine")
    folders = [f"{WHEELS}/{one}/lib" for one in missed]
    assert path == [*folders, "mine"]
    assert ("which tensorflow-2.21.0 does not search by itself" in log) == bool(missed)
    assert libraries(machine, "mine", *folders)[0] == ["mine", *folders]
    for broken in (b"", b"\x7fELF\2\1", library.read_bytes()[:150], b"no library at all" * 9):
        library.write_bytes(broken)
        assert libraries(machine, "mine", *OURS, f"{WHEELS}/cusolver/lib")[0][0] == "mine"


def test_only_wheels_of_tensorflows_cuda_version_count_as_missing(machine):
    machine.add(f"{WHEELS}/cu13/lib/libcublas.so.13", f"{WHEELS}/cublas/lib/libcublas.so.12")
    machine.add(
        f"{WHEELS}/../tensorflow/libtensorflow_framework.so.2", f"{WHEELS}/../tensorflow-2.30.0.dist-info/RECORD"
    )
    for named in ("cu13", "cublas"):
        library = machine.site / "tensorflow/libtensorflow_framework.so.2"
        library.write_bytes(shared_library(f"$ORIGIN/../nvidia/{named}/lib"))
        assert libraries(machine) == ([], "")


def prepare(tmp_path, keys="", gpus="4", sbatch=(), **more):
    (tmp_path / "s.toml").write_text(f'extends = "slurm"\n{keys}\n')
    resources = {"sbatch": sbatch, **({"gpus_per_node": gpus} if gpus else {})}
    return submission.prepare(Request(None, ("a",), site=str(tmp_path / "s.toml"), resources=resources, **more))


def script(*args, **more):
    return prepare(*args, **more).script


WITHOUT = [
    ("", {"gpus": None}),
    ("", {"no_gpu": True}),
    ('gpu.vendor = "amd"', {}),
    ("[partitions.cpu]\ngpus_per_node = 0", {"gpus": None}),
    ('sbatch = ["--gres=gpu:4"]', {"gpus": None, "no_gpu": True}),
    ('sbatch = ["--gres=gpu:4"]', {"gpus": None, "sbatch": ("--gres=none",)}),
]
"""Jobs without NVIDIA's GPUs: keys of the site, and what is asked for."""


def test_jobs_on_nvidia_gpus_search_for_cuda_unless_the_site_disables_it(tmp_path):
    assert "[ -e /dev/nvidiactl ] && hpcrun_cuda &&\n" in script(tmp_path)
    assert "hpcrun_cuda" not in script(tmp_path, "cuda.search = false")
    key = 'cuda.ptxas = ["${CUDA_HOME}/bin/ptxas"]'
    asked = "\nhpcrun_cuda \\\n  '--ptxas=${CUDA_HOME}/bin/ptxas'"
    assert f"{asked} &&\n" in script(tmp_path, key)
    assert f"{asked} \\\n  --no-search &&\n" in script(tmp_path, f"{key}\ncuda.search = false")


@pytest.mark.parametrize(("keys", "sbatch"), [
    ("", ("--gres=gpu:a100:2",)),
    ('sbatch = ["--gres=gpu:4"]', ()),
    ('[partitions.gpu]\nsbatch = ["--gpus=4"]', ()),
])  # fmt: skip
def test_jobs_with_gpus_from_raw_sbatch_options_search_for_cuda(tmp_path, keys, sbatch):
    keys = f'cuda.xla_flags = ["--dir=${{CUDA_HOME}}"]\n{keys}'
    plan = prepare(tmp_path, keys, gpus=None, sbatch=sbatch)
    text = plan.script
    assert plan.spec.has_gpus, "also of a partition, before the script is made"
    assert "[ -e /dev/nvidiactl ]" in text
    assert "CUDA_HOME: site key cuda.xla_flags names it" in bash(block(text), tmp_path).stderr


@pytest.mark.parametrize(("site", "asked"), WITHOUT)
def test_jobs_without_nvidia_gpus_never_search_for_cuda(tmp_path, site, asked):
    keys = ['data_dir = "${CUDA_HOME}"', 'libdevice = ["${CUDA_HOME}/x.bc"]']
    keys += ['xla_flags = ["--cpu", "--dir=${CUDA_HOME}"]']
    text = script(tmp_path, "\n".join([*(f"cuda.{key}" for key in keys), site]), **asked)
    assert "hpcrun_cuda" not in text
    done = bash(f'{block(text)}echo "$XLA_FLAGS"', tmp_path)
    assert (done.stdout, done.stderr) == ("--cpu\n", "")  # XLA's own flags are for all that it compiles for
    assert bash(f'{block(text)}echo "$XLA_FLAGS"', tmp_path, CUDA_HOME="/c").stdout == "--cpu --dir=/c\n"


def block(text):
    """Return the lines of a job's script up to what comes after CUDA, and without what belongs to jobs alone."""
    lines = text[text.index("# ---- CUDA's files") : text.index("# ---- Launch")]
    return bash_library.source_commands('echo "FAIL $1"') + f"{lines}\n"


def bash(lines, tmp_path, **environ):
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HPCRUN_RUN_DIR": f"{tmp_path}/run", **environ}
    return subprocess.run(["bash", "-uc", lines], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("where", ["nvvm/libdevice", "lib/nvvm/libdevice", "lib"])
def test_the_styx_script_points_xla_to_condas_cuda(machine, tmp_path, where):
    machine.add(f"conda/{where}/libdevice.10.bc", "conda/bin/ptxas")
    text = submission.prepare(Request(None, ("a",), site="styx", resources={"gpus_per_node": "4"})).script
    done = bash(f'{block(text)}echo "$XLA_FLAGS"', tmp_path, CONDA_PREFIX=f"{tmp_path}/conda", XLA_FLAGS="--mine")
    assert done.stderr == ""
    log, flags = done.stdout.splitlines()
    assert log.startswith(
        f"hpcrun: XLA gets libdevice.10.bc from {tmp_path}/conda/{where}/libdevice.10.bc (cuda.libdev"
    )
    assert flags == f"--mine {FLAG}{tmp_path}/run/cuda"
    assert (tmp_path / "run/cuda" / LIBDEVICE).read_text() == f"conda/{where}/libdevice.10.bc"
    assert (tmp_path / "run/cuda/bin/ptxas").exists()


def test_the_script_searches_for_cuda_only_with_an_nvidia_driver(machine, tmp_path):
    machine.add(f"conda/{LIBDEVICE}", "conda/bin/ptxas")
    text = block(script(tmp_path, 'cuda.xla_flags = ["--theirs"]'))
    for driver, looked in (("/nowhere", False), ("/dev/null", True)):
        lines = text.replace("/dev/nvidiactl", driver) + 'echo "$XLA_FLAGS"'
        done = bash(lines, tmp_path, CONDA_PREFIX=f"{tmp_path}/conda", XLA_FLAGS="--mine")
        flags = done.stdout.splitlines()[-1]
        assert flags.startswith("--theirs --mine")
        assert (FLAG in flags) == looked


def test_a_requeued_job_relinks_cuda_without_changing_the_roots(machine, tmp_path):
    """The folder cuda is a link to a root at first, then a folder with links, then a link again."""
    lines = block(script(tmp_path, 'cuda.libdevice = ["${MINE}"]')) + 'echo "$XLA_FLAGS"'
    machine.add(f"conda/{LIBDEVICE}", "conda/bin/ptxas", "mine/libdevice.10.bc")
    before = sorted(machine.folder.rglob("conda/**/*"))
    for more, found in (
        ({}, f"conda/{LIBDEVICE}"),
        ({"MINE": f"{tmp_path}/mine/libdevice.10.bc"}, "mine/libdevice.10.bc"),
    ) * 2:
        done = bash(lines, tmp_path, CONDA_PREFIX=f"{tmp_path}/conda", **more)
        assert done.stdout.splitlines()[-1] == f"{FLAG}{tmp_path}/run/cuda"
        assert (tmp_path / "run/cuda" / LIBDEVICE).read_text() == found
        assert (tmp_path / "run/cuda/bin/ptxas").read_text() == (tmp_path / "conda/bin/ptxas").read_text()
    assert sorted(machine.folder.rglob("conda/**/*")) == before


@pytest.mark.parametrize(("mine", "seen"), [
    ("--x=mine", "--x=site --y=site --x=mine"),  # of two, XLA takes the last
    (" --x=mine", "--x=site --y=site  --x=mine"),
    (f"{FLAG}/my/own", f"--x=site --y=site {FLAG}/my/own"),
    ("/home/me/flags-of-xla", "/home/me/flags-of-xla"),  # a file of flags
    ("flags", "flags"),
    ("", "--x=site --y=site"),
])  # fmt: skip
@pytest.mark.parametrize("typed", [True, False], ids=["-x", "environment"])
def test_xla_flags_of_the_user_follow_those_of_the_site(tmp_path, mine, seen, typed):
    keys = 'cuda = { xla_flags = ["--x=site", "--y=site"], search = false }'
    text = script(tmp_path, keys, environment=(("XLA_FLAGS", mine),) if typed else ())
    lines = text[text.index("# ---- Environment") : text.index("# ---- Launch")] + 'printf %s "$XLA_FLAGS"'
    lines = bash_library.source_commands() + lines
    done = bash(lines, tmp_path, XLA_FLAGS="--of-the-shell" if typed else mine)
    assert done.stdout == seen
    assert ("is a file of flags" in done.stderr) == ("flags" in mine)


def test_an_unset_variable_in_a_site_value_ends_the_job_before_its_ranks(tmp_path):
    done = bash(block(script(tmp_path, 'cuda.data_dir = "${CUDA_HOME}"')) + "echo ranks", tmp_path)
    assert "CUDA_HOME: site key cuda.data_dir names it, and it is not set" in done.stderr
    assert (done.returncode, done.stdout) == (1, "FAIL the site keys of cuda are not valid in this job\n")


def test_ranks_of_a_job_get_the_xla_flags_and_the_log_shows_them(machine, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # so many GPUs has this host, for a local job
    machine.add("conda/lib/libdevice.10.bc")
    (tmp_path / "s.toml").write_text(f'extends = "local"\ncuda.libdevice = ["{tmp_path}/conda/lib/libdevice.10.bc"]\n')
    ask = 'echo "rank has $XLA_FLAGS"; cat "${XLA_FLAGS#*=}/nvvm/libdevice/libdevice.10.bc"'
    job = hpcrun.submit(None, ["sh", "-c", ask], site=str(tmp_path / "s.toml"))
    job.wait()
    log = job.stdout()
    assert f"rank has {FLAG}{job.directory}/cuda\nconda/lib/libdevice.10.bc" in log
    assert f"hpcrun: XLA gets libdevice.10.bc from {tmp_path}/conda/lib/libdevice.10.bc (cuda.libdevice)" in log


def test_the_cuda_command_prints_a_table(machine, tmp_path, cli, monkeypatch):
    machine.add("conda/lib/libdevice.10.bc")
    monkeypatch.setenv("CONDA_PREFIX", f"{tmp_path}/conda")
    code, out, err = cli("cuda", "--site", "styx")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["cuda.libdevice", f"{tmp_path}/conda/lib/libdevice.10.bc", "used"] in rows
    assert f"XLA gets libdevice.10.bc from {tmp_path}/conda/lib/libdevice.10.bc (cuda.libdevice)" in err
    output = json.loads(cli("cuda", "--site", "styx", "--json")[1])
    assert output["libdevice"] == f"{tmp_path}/conda/lib/libdevice.10.bc"
    assert output["variables"]["XLA_FLAGS"] == f"{FLAG}{Path.cwd()}/cuda"
    assert not (Path.cwd() / "cuda").exists()  # looking changes nothing
