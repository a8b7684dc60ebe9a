"""Import hook that calls a function after the import of a module, for `sitecustomize.py`; Python 3.7 or later."""

import sys


class ImportHook:
    """A finder on `sys.meta_path` that calls a function with a module after its import, once.

    Args:
        name: The full name of the module.
        function: The function; its errors are ignored, because the module may be of an unknown version.
    """

    def __init__(self, name, function):
        self.name, self.function = name, function

    def find_spec(self, name, path=None, target=None):
        """Find the module as Python would, and let its import end with the call of the function."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        original_exec = spec.loader.exec_module if spec and spec.loader else None

        def exec_module(module):
            original_exec(module)
            try:
                self.function(module)
            except Exception:  # of another version
                pass

        if original_exec:
            spec.loader.exec_module = exec_module
        return spec
