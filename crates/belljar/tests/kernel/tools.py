"""Calls tools of an MCP server in cells of the kernel `belljar`, and answers its questions as a frontend does."""

import sys

from jupyter_client.manager import KernelManager

REPLY_TIMEOUT = 180


def run(client, code, answer=None):
    """Runs a cell, and answers a question; without an answer, the frontend cannot be asked. Returns reply and text."""
    name = client.execute(code, allow_stdin=answer is not None)
    question = None
    if answer is not None:
        question = client.get_stdin_msg(timeout=REPLY_TIMEOUT)["content"]["prompt"]
        client.input(answer)
    while True:
        reply = client.get_shell_msg(timeout=REPLY_TIMEOUT)
        if reply["parent_header"].get("msg_id") == name:
            break
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=REPLY_TIMEOUT)
        if message["parent_header"].get("msg_id") != name:
            continue
        content = message["content"]
        if message["msg_type"] == "stream":
            text += content["text"]
        elif message["msg_type"] == "execute_result":
            text += content["data"]["text/plain"]
        elif content.get("execution_state") == "idle":
            return reply["content"], text, question


def main():
    manager = KernelManager(kernel_name="belljar")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=REPLY_TIMEOUT)
        reply, text, _ = run(client, "import asyncio, tools\nfrom tools import t\nawait t.add(a=1)")
        assert (reply["status"], text) == ("ok", "2"), (reply, text)
        gather = "sum(await asyncio.gather(*(t.add(a=n) for n in range(50))))"
        assert run(client, gather)[1] == str(sum(range(1, 51)))
        assert run(client, "t.add(a=4).result()")[1] == "5"
        reply, _, _ = run(client, "t.add(a=1)")
        assert reply["ename"] == "NotAwaitedError", reply
        _, text, _ = run(client, "_ = t.add(a=1)\ndel _")
        assert text.endswith("RuntimeWarning: the call of t.add was never awaited\n"), text
        reply, text, question = run(client, "await t.note(text='x')", "yes")
        assert text == "'noted x'", (reply, text)
        assert "The code calls the tool note of the MCP server t." in question, question
        assert "await t.note(text='x')" in question, question
        reply, _, _ = run(client, "await t.note(text='x')", "no")
        assert reply["ename"].endswith("ToolDenied") and "the user denied" in reply["evalue"], reply
        reply, _, _ = run(client, "await t.note(text='x')")
        assert "--approve of `belljar kernel run`" in reply["evalue"], reply
        assert run(client, "await t.note(text='x')", "session")[1] == "'noted x'"
        assert run(client, "await t.note(text='y')")[1] == "'noted y'"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


sys.exit(main())
