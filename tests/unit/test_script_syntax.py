"""Python scripts that do not compile are refused before they are submitted."""

import pytest

from hpcrun.errors import HpcrunError
from hpcrun.workload import find_workload


@pytest.mark.parametrize(("text", "line", "error"), [
    ("x = 1\nif x:\nprint(x)\n", 3, "IndentationError: expected an indented block"),
    ("def f():\n    a = 1\n  b = 2\n", 3, "IndentationError: unindent does not match"),
    ("if 1:\n\ta = 1\n        b = 2\n", 3, "TabError: inconsistent use of tabs"),
    ("x = 1\nmodel = build(x\n\n", 2, "SyntaxError: '(' was never closed"),
    ("for i in range(3)\n    pass\n", 1, "SyntaxError: expected ':'"),
    ("x = 1\ndef f(:\n    pass\n", 2, "SyntaxError: invalid syntax"),
    ("y = 1 +  # more\n", 1, "SyntaxError: invalid syntax"),
    ("x =\n", 1, "SyntaxError: invalid syntax"),
    ("f(a,,b)\n", 1, "SyntaxError: invalid syntax"),
])  # fmt: skip
def test_a_script_that_does_not_compile_is_refused_with_file_and_line(tmp_path, text, line, error):
    script = tmp_path / "train.py"
    script.write_text(text)
    with pytest.raises(HpcrunError) as caught:
        find_workload(str(script))
    assert str(caught.value).startswith(f"{script}, line {line}: {error}")


@pytest.mark.parametrize("command", [
    "!pip install torch", "%matplotlib inline", "%%writefile x.py", "files = !ls", "    !ls",
    "get_ipython().run_line_magic('matplotlib', 'inline')", "files = get_ipython().getoutput('ls')",
])  # fmt: skip
def test_a_command_of_a_notebook_is_refused(tmp_path, command):
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nif True:\n    pass\n{command}\n")
    with pytest.raises(HpcrunError, match=r"train\.py, line 4: .* is a command of a notebook, not of Python"):
        find_workload(str(script))


def test_a_long_command_of_a_notebook_is_shortened(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"get_ipython().run_cell_magic('bash', '', {'echo 1 ' * 100!r})\n")
    with pytest.raises(HpcrunError, match=r"^\S+, line 1: .{,80} is a command of a notebook, not of Python\n"):
        find_workload(str(script))


@pytest.mark.parametrize("text", [
    "try:\n    get_ipython().run_line_magic('cd', '/')\nexcept NameError:\n    pass\n",
    "from IPython import get_ipython\nget_ipython()\n", "class get_ipython: pass\nget_ipython()\n",
    "import IPython\nget_ipython = IPython.get_ipython\nget_ipython().run_line_magic('cd', '/')\n",
    "f = lambda: get_ipython()\n",
    "x = 1\n", "type = ~~\n", "s = f'{a['b']}'\n", "x = '\\p'\n", "x = '\0'\n",
    "type X[T] = int\n", "def f[T](x): pass\n", "lazy import x\n", "f(a=)\n", "a = b?.c\n",
])  # fmt: skip
def test_a_script_that_another_python_may_compile_is_not_refused(tmp_path, text):
    script = tmp_path / "train.py"
    script.write_text(text)
    assert find_workload(str(script))[0].program == (None, str(script))


def test_misspelled_script_gets_the_closest_one(tmp_path):
    (tmp_path / "train.py").write_text("x = 1\n")
    with pytest.raises(HpcrunError, match=r"did you mean .*/train\.py"):
        find_workload(str(tmp_path / "trian.py"))
