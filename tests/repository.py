"""A git repository of somebody's training code."""

import subprocess


class Repository:
    """A repository in a folder.

    Args:
        folder: The folder to create.
    """

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words):
        options = ("-c", "user.name=n", "-c", "user.email=e", "-c", "protocol.file.allow=always")
        command = ["git", "-C", self.folder, *options, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def commit(self, **files):
        """Write files, commit all changes and return the commit."""
        for name, text in files.items():
            self.write(f"{name}.py", text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=m")
        return self.git("rev-parse", "HEAD").strip()
