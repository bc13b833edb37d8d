"""A kernel whose frontend is killed exits, also while a cell runs."""

import subprocess
import sys
import time
from pathlib import Path

FRONTEND = """
import os, time
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name="belljar")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=180)
client.execute("while True: pass")
time.sleep(1)
print(manager.provisioner.process.pid, flush=True)
os._exit(1)
"""


def lives(pid):
    try:
        # The state follows the program's name in parentheses. A zombie counts as ended: its parent may not reap it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


pid = int(subprocess.run([sys.executable, "-c", FRONTEND], capture_output=True, text=True).stdout)
deadline = time.monotonic() + 120
while lives(pid):
    assert time.monotonic() < deadline, "it lives on"
    time.sleep(0.1)
