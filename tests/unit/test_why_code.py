"""What `hpcrun why` reads from the user's line of code: which part of it the exception is about."""

import pytest

from hpcrun.why.code_details import describe, describe_argument, describe_library
from hpcrun.why.explanation import explain
from tests.unit.test_why import recorded

__all__ = ["recorded"]

FILE = "/home/u/train.py"


@pytest.mark.parametrize(("error", "code", "details"), [
    ("AttributeError: 'NoneType' object has no attribute 'shape'", "h, w = self.load(i).image.shape[:2]",
     "`self.load(i).image` is None"),
    ("AttributeError: 'NoneType' object has no attribute 'group'", "n = int(re.search(p, name).group(1))",
     "`re.search(p, name)` returned None"),
    ("AttributeError: 'str' object has no attribute 'shape'", "if image.shape[0] > 3:", "`image` is a str"),
    ("TypeError: 'NoneType' object is not subscriptable", "for x in config['layers']:", "`config` is None"),
    ("TypeError: 'int' object is not subscriptable", "elif state[0] > 3:", "`state` is an int"),
    ("TypeError: cannot unpack non-iterable NoneType object", "x, y = self.get(i)", "`self.get(i)` returned None"),
    ("TypeError: cannot unpack non-iterable NoneType object", "for a, b in pairs:", "an element of `pairs` is None"),
    ("TypeError: cannot unpack non-iterable int object", "d = {k: v for k, v in n}", "an element of `n` is an int"),
    ("TypeError: 'NoneType' object is not iterable", "for i, x in enumerate(batch):", "`batch` is None"),
    ("TypeError: argument of type 'NoneType' is not iterable", "if 'x' not in self.options:", "`self.options` is None"),
    ("TypeError: 'NoneType' object is not iterable", "a, b = list(self.load(i))", "`self.load(i)` returned None"),
    ("TypeError: object of type 'NoneType' has no len()", "n = len(self.files),", "`self.files` is None"),
    ("TypeError: unsupported operand type(s) for +: 'NoneType' and 'str'", "path = os.environ.get('A') + '/b'",
     "`os.environ.get('A')` returned None"),
    ("TypeError: unsupported operand type(s) for /: 'str' and 'int'", "lr=args.lr / 10)", "`args.lr` is a str"),
    ("TypeError: '<' not supported between instances of 'NoneType' and 'int'", "if best < 3:", "`best` is None"),
    ("TypeError: can't multiply sequence by non-int of type 'list'", "rows = [None] * size", "`size` is a list"),
    ("TypeError: __init__() got an unexpected keyword argument 'gpus'", "trainer = pl.Trainer(gpus=1, max_epochs=3)",
     "`pl.Trainer` takes no argument gpus"),
    ("KeyError: 'lr'", "lr=config['optim']['lr'],", "`config['optim']` has no key 'lr'"),
    ("KeyError: 'tench'", "label = self.index[name]", "`self.index` has no key 'tench', the value of `name`"),
    ("IndexError: list index out of range", "last = sorted(glob(pattern))[-1]", "`sorted(glob(pattern))` is empty"),
    ("IndexError: list index out of range", "step = name.split('_')[2]", "`name.split('_')` has no element 2"),
    ("ZeroDivisionError: division by zero", "return total / len(loader)", "`len(loader)` is zero"),
    ("TypeError: expected str, bytes or os.PathLike object, not NoneType", "with open(args.config) as f:",
     "`args.config` is None"),
])  # fmt: skip
def test_the_part_of_the_line_that_fails_is_named(error, code, details):
    assert describe(error, code, FILE, FILE) == details


@pytest.mark.parametrize(("error", "code"), [
    ("TypeError: 'NoneType' object is not subscriptable", "loss = a[0] + b[0]"),
    ("AttributeError: 'NoneType' object has no attribute 'shape'", "x.shape == y.shape"),
    ("AttributeError: 'NoneType' object has no attribute 'shape'", "def odd(:"),
    ("AttributeError: 'Net' object has no attribute 'fc'", "y = self.fc(x)"),
    ("ZeroDivisionError: integer division or modulo by zero", "print('%d' % n)"),
    ("TypeError: 'NoneType' object is not iterable", "for x, y in zip(images, labels):"),
    ("KeyError: 'x'", "d.pop(cfg[name])"),
    ("RuntimeError: odd", "x = y.z"),
])  # fmt: skip
def test_no_part_is_named_if_several_may_fail(error, code):
    assert describe(error, code, FILE, FILE) == ""


def test_an_exception_of_a_library_says_nothing_about_the_users_line_but_for_paths():
    library, system = "/env/lib/python3.12/site-packages/odd/core.py", "/usr/lib/python3.12/posixpath.py"
    assert describe("KeyError: 'a'", "x = f(y['a'])", library, FILE) == ""
    error = "TypeError: join() argument must be str, bytes, or os.PathLike object, not 'NoneType'"
    assert describe(error, "path = join(args['temp_dir'], 'queries')", system, FILE) == "`args['temp_dir']` is None"


def test_the_part_of_a_librarys_line_is_named_with_its_file():
    error = "TypeError: object of type 'NoneType' has no len()"
    assert describe_library(error, "if len(callbacks) > 0:", "odd/fit.py") == "in odd/fit.py, `callbacks` is None"
    cut_off = "self.lib.get_row_stats(pointer, row_stats, column_stats, c_float(thresho ..."
    error = "AttributeError: 'NoneType' object has no attribute 'get_row_stats'"
    assert describe_library(error, cut_off, "odd/f.py") == "in odd/f.py, `self.lib` is None"
    assert describe_library("ValueError: odd", "raise ValueError('odd')", "odd/fit.py") == ""


@pytest.mark.parametrize(("error", "code", "details"), [
    ("ValueError: `padding` must be 'valid' or 'same'", "x = Conv2D(3, padding='sane')(x)",
     "that line gives `padding='sane'`"),
    ("ValueError: Argument units must be positive. Received: units=0", "x = Dense(units=n // 4)(x)",
     "that line gives `units=n // 4`"),
    ("ValueError: `padding` must be 'valid' or 'same'", "x = Conv2D(3, 'sane')(x)", ""),
    ("ValueError: `left` and `right` differ", "f(left=a, right=b)", ""),
    ("ValueError: 'a' is odd", "f(a=", ""),
])  # fmt: skip
def test_the_argument_that_a_message_names_is_quoted(error, code, details):
    assert describe_argument(error, code) == details


def test_an_argument_of_the_users_line_is_quoted_for_an_exception_of_a_library(recorded):
    library = '  File "/env/lib/python3.12/site-packages/odd/core.py", line 5, in f\n    raise ValueError(message)\n'
    head = f'Traceback (most recent call last):\n  File "{FILE}", line 9, in main\n    y = layer(mode=args.mode)\n'
    log = f"{head}{library}ValueError: Unknown mode 'x' for argument `mode`\n"
    fix = explain(recorded.job(exit_code=1, logs={"12_0_log.err": log})).diagnosis.fix
    assert fix.startswith("that line gives `mode=args.mode`; the value is none of those")


def test_the_fix_begins_with_the_part_that_fails(recorded):
    log = f'Traceback (most recent call last):\n  File "{FILE}", line 9, in main\n    n = len(self.files)\n'
    run = recorded.job(exit_code=1, logs={"12_0_log.err": f"{log}TypeError: object of type 'NoneType' has no len()\n"})
    assert explain(run).diagnosis.fix.startswith("`self.files` is None; ")


def test_a_cause_that_an_exception_shows_names_the_users_line(recorded):
    head = f'Traceback (most recent call last):\n  File "{FILE}", line 9, in main\n    y = net(x.cuda())\n'
    message = (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    diagnosis = explain(recorded.job(exit_code=1, logs={"12_0_log.err": f"{head}{message}\n"})).diagnosis
    assert diagnosis.name == "mixed-devices"
    assert diagnosis.fix.endswith(f"it was raised at {FILE}, line 9, in `y = net(x.cuda())`")


def test_a_line_of_a_library_is_not_called_the_users(recorded):
    library = "/env/lib/python3.12/site-packages/odd/core.py"
    head = f'Traceback (most recent call last):\n  File "{library}", line 9, in run\n    y = net(x.cuda())\n'
    message = (
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
    )
    diagnosis = explain(recorded.job(exit_code=1, logs={"12_0_log.err": f"{head}{message}\n"})).diagnosis
    assert diagnosis.name == "mixed-devices"
    assert "raised at" not in diagnosis.fix
