"""A server of the installed package."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

COMMAND = Path(sys.executable).with_name("belljar")
TOKEN = "secret-of-the-tests"
"""The token of the fixture `server`."""


class Server:
    """A process of `belljar streamable-http`."""

    def __init__(self, *arguments: str) -> None:
        command = [str(COMMAND), "streamable-http", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.url = ""
        for line in self.process.stderr:
            if line.startswith("listening on "):
                self.url = line.removeprefix("listening on ").strip()
                break
        # Read on, or the server would fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
