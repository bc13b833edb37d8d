"""A kernel without Python replies to requests, and reports in each cell why it cannot run code."""

from jupyter_client.manager import KernelManager

manager = KernelManager(kernel_name="belljar")
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=180)
    for _ in range(2):
        reply = client.execute("1", reply=True, timeout=180)["content"]
        assert reply["status"] == "error" and reply["ename"] == "KernelError", reply
        assert "not in the cache" in reply["evalue"] and "hint: " in reply["evalue"], reply
    reply = client.complete("pri", reply=True, timeout=180)["content"]
    assert reply["status"] == "error", reply
finally:
    client.stop_channels()
    manager.shutdown_kernel()
