"""Runs a command in a shell."""

from __future__ import annotations

import codecs
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import IO

NOT_FOUND = 127
SIGNAL_BASE = 128
READ_BYTES = 65536
# The time for which the output is read after the shell has ended: a process that the command has left in the background
# may have it open for longer.
REST_SECONDS = 1.0
POLL_SECONDS = 0.1

# A piece of a stream; `None` is the end of the stream.
Chunks = queue.Queue[tuple[IO[str], str | None]]


def run(command: str) -> int:
    """Run the command, copy its output to the standard streams, and return its exit status."""
    shell = shutil.which("bash") or shutil.which("sh")
    if shell is None:
        print("there is no shell: neither bash nor sh is installed", file=sys.stderr)
        return NOT_FOUND
    process = subprocess.Popen(
        [shell, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _copy_output(process)
        status = process.wait()
    except BaseException:
        # Interrupted: the command ends with all of its processes.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return SIGNAL_BASE - status if status < 0 else status


def _copy_output(process: subprocess.Popen[bytes]) -> None:
    chunks: Chunks = queue.Queue(maxsize=16)
    streams = [(process.stdout, sys.stdout), (process.stderr, sys.stderr)]
    for source, target in streams:
        threading.Thread(target=_read, args=(source, target, chunks), daemon=True).start()
    rest_end = None
    open_streams = len(streams)
    while open_streams:
        try:
            target, text = chunks.get(timeout=POLL_SECONDS)
        except queue.Empty:
            if process.poll() is None:
                continue
            rest_end = rest_end or time.monotonic() + REST_SECONDS
            if time.monotonic() > rest_end:
                return
            continue
        if text is None:
            open_streams -= 1
        else:
            target.write(text)


def _read(source: IO[bytes], target: IO[str], chunks: Chunks) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := os.read(source.fileno(), READ_BYTES):
        chunks.put((target, decoder.decode(data)))
    chunks.put((target, decoder.decode(b"", final=True)))
    chunks.put((target, None))
