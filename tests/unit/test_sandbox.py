"""Templates, whoever wrote them, do nothing while they are rendered: a dry run is safe."""

import os
import stat

import pytest
from jinja2.bccache import bc_magic

from hpcrun import paths, submission
from hpcrun.errors import HpcrunError
from hpcrun.request import Request
from hpcrun.script.render import render

ATTACKS = [
    "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}",
    "{{ lipsum.__globals__['os'].system('touch CANARY') }}",
    "{{ joiner.__init__.__globals__['__builtins__']['open']('CANARY', 'w') }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ spec.__init__.__globals__ }}",
    "{{ spec['__class__'] }}",
    "{{ spec|attr('__init__')|attr('__globals__') }}",
    "{{ [spec]|map(attribute='__init__.__globals__')|list }}",
    "{{ [spec]|map('attr', '__class__')|join }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(spec) }}",
    "{{ '{0.__class__}'|attr('format')(spec) }}",
    "{{ ''.format_map({'a': spec}) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ run_dir.parent.joinpath('CANARY').write_text('x') }}",
    "{{ spec.run_dir.cwd() }}",
    "{{ spec.directory.joinpath('victim').unlink() }}",
    "{{ spec.directory.iterdir()|list }}",
    "{% for file in spec.directory.glob('*') %}{{ file.read_text() }}{% endfor %}",
    "{{ [spec.directory.joinpath('victim').unlink]|map('call')|list }}",
    "{{ site.resolve(spec.resources) }}",
    "{{ launcher.command(spec) }}",
    "{{ site.environment.update({'A': 'evil'}) }}",
    "{{ site.environment.pop('A') }}",
    "{% macro m() %}{{ caller.__globals__ }}{% endmacro %}{% call m() %}{% endcall %}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ range(10**12)|list }}",
    "{{ quote.__globals__ }}",
    "{% include '../../secret' %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]


@pytest.fixture
def template(tmp_path, monkeypatch):
    """Return what gives a user's own template a text, and renders a script with it."""
    file = tmp_path / "config/hpcrun/templates/slurm.sh.j2"
    file.parent.mkdir(parents=True)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/victim").write_text("keep")
    (tmp_path / "config/secret").write_text("a secret\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "work")

    def rendered(body):
        file.write_text('{% extends "slurm.sh.j2" %}{% block setup %}' + body + "\n{% endblock %}\n")
        return submission.prepare(Request(None, ("a.out",), {}, "slurm")).script

    return rendered


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_an_error_that_names_the_template(template, tmp_path, attack):
    canary = tmp_path / "canary"
    for _ in range(2):  # also as it was compiled before
        with pytest.raises(HpcrunError) as error:
            template(attack.replace("CANARY", str(canary)))
        assert "docs/templates.md" in str(error.value)
    assert not canary.exists()
    assert (tmp_path / "work/victim").read_text() == "keep"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{{ super() }}echo {{ spec.name | quote }}", "echo a.out"),
        ("echo {{ spec.run_dir.name[:5] | quote }} {{ run_dir | quote }}", "echo a.out /"),
        ("echo {{ spec.argv[0].upper() }} {{ 'a b'.split() | join('-') }}", "echo A.OUT a-b"),
        (
            "{% for key, value in site.mpi.environment.items() %}{{ key }}{% else %}echo none{% endfor %}",
            "\nMPIR_CVAR_CH4_NETMOD",
        ),
        ("{% macro hello(name) %}echo hello {{ name }}{% endmacro %}{{ hello('you') }}", "echo hello you"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}echo {{ ns.n }}",
            "echo 3",
        ),
        (
            "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{% set j = joiner(',') %}{{ j() }}x{{ j() }}",
            "abx,",
        ),
        ("{% for n in [[1, [2]]] recursive %}{{ n }}{% endfor %}", "[1, [2]]"),
    ],
)
def test_ordinary_templates_render_in_the_sandbox(template, body, text):
    for _ in range(2):
        assert text in template(body)


def test_calling_an_unknown_name_is_an_undefined_error(template):
    with pytest.raises(HpcrunError, match="'nothere' is undefined"):
        template("{{ nothere() }}")


@pytest.mark.parametrize(
    ("expression", "name"),
    [("sit.name", "site"), ("spec.resources.node", "nodes"), ("spec.naem", "name"), ("site.setpu", "setup")],
)
def test_the_hint_about_an_undefined_name_has_the_closest_one(template, expression, name):
    with pytest.raises(HpcrunError) as error:
        template(f"{{{{ {expression} }}}}")
    assert error.value.hint == f"did you mean {name}? docs/templates.md lists the variables"


@pytest.mark.parametrize("planted", ["writable", "link"])
def test_bytecode_that_others_can_write_or_that_is_a_link_is_not_loaded(template, tmp_path, planted):
    template("echo hello")
    kept = sorted(paths.user_cache_folder("templates").iterdir())
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}
    for file in kept:
        content = bc_magic + f"cos\nsystem\n(S'touch {tmp_path}/canary'\ntR.".encode()  # jinja2 unpickles a checksum
        real = tmp_path / file.name if planted == "link" else file
        file.unlink()
        real.write_bytes(content)
        if planted == "link":
            file.symlink_to(real)
        else:
            file.chmod(0o660)
    assert "echo hello" in template("echo hello")
    assert not (tmp_path / "canary").exists()
    assert not any(file.is_symlink() for file in kept)  # another took its place


def test_bytecode_compiled_without_the_sandbox_is_never_loaded(template):
    """Earlier versions kept templates under these names in the same folder."""
    template("echo hello")
    folder = paths.user_cache_folder("templates")
    assert all(file.name.startswith("sandboxed-") for file in folder.iterdir())


def test_rendering_does_not_change_the_spec(template):
    plan = submission.prepare(Request(None, ("a.out",), {}, "slurm"))
    before = repr(plan.spec)
    render(plan.spec)
    assert repr(plan.spec) == before
    assert os.path.isabs(plan.spec.run_dir)  # noqa: PTH117
