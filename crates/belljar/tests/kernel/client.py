"""Uses the kernel `belljar` as a frontend does, over the given transport. Prints nothing if all checks pass."""

import sys
import time
from queue import Empty

from jupyter_client.manager import KernelManager

REPLY_TIMEOUT = 180


def start(transport="tcp"):
    manager = KernelManager(kernel_name="belljar", transport=transport, shutdown_wait_time=REPLY_TIMEOUT)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=REPLY_TIMEOUT)
    return manager, client


def run(client, code, **options):
    """Runs a cell and returns its reply and its iopub messages between busy and idle."""
    name = client.execute(code, **options)
    return reply_to(client, name), outputs(client, name)


def reply_to(client, name):
    while True:
        reply = client.get_shell_msg(timeout=REPLY_TIMEOUT)
        if reply["parent_header"].get("msg_id") == name:
            return reply["content"]


def outputs(client, name):
    found, busy = [], False
    while True:
        message = client.get_iopub_msg(timeout=REPLY_TIMEOUT)
        if message["parent_header"].get("msg_id") != name:
            continue
        state = message["content"].get("execution_state") if message["msg_type"] == "status" else None
        if state == "idle":
            assert busy
            return found
        busy = busy or state == "busy"
        if state is not None:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and found and found[-1][0] == "stream" and found[-1][1]["name"] == content["name"]:
            # On a busy machine a line may arrive in two messages.
            found[-1][1]["text"] += content["text"]
            continue
        found.append((kind, content))


def text(found, stream="stdout"):
    return "".join(content["text"] for kind, content in found if kind == "stream" and content["name"] == stream)


def kinds(found):
    return [kind for kind, _ in found]


def check_cells(client):
    reply, found = run(client, "x = 6\nprint('six')\nx * 7", user_expressions={"y": "x + 1", "z": "1 / 0"})
    assert reply["status"] == "ok" and reply["execution_count"] == 1, reply
    assert kinds(found) == ["execute_input", "stream", "execute_result"], found
    assert found[2][1]["data"] == {"text/plain": "42"} and found[2][1]["execution_count"] == 1
    expressions = reply["user_expressions"]
    assert expressions["y"]["data"]["text/plain"] == "7" and expressions["z"]["ename"] == "ZeroDivisionError"
    # The cell is neither numbered nor in the history.
    reply, found = run(client, "print('quiet')\n1", silent=True)
    assert reply["status"] == "ok" and kinds(found) == ["stream"], (reply, found)
    reply, found = run(client, "2", store_history=False)
    assert kinds(found) == ["execute_input", "execute_result"], found
    reply, _ = run(client, "_, In[1]")
    assert reply["execution_count"] == 2, reply
    reply, found = run(client, "1 / 0")
    assert reply["status"] == "error" and reply["ename"] == "ZeroDivisionError", reply
    assert reply["evalue"] == "division by zero" and any("----> " in line for line in reply["traceback"]), reply
    assert kinds(found)[-1] == "error", found
    # Characters in several pieces are joined, and long output is complete.
    _, found = run(client, "import sys\nfor byte in '€😀'.encode(): sys.stdout.buffer.write(bytes([byte]))")
    assert text(found) == "€😀", found
    _, found = run(client, "for n in range(20000): print(n)\nprint('end', file=sys.stderr)")
    assert text(found) == "".join(f"{n}\n" for n in range(20000)) and text(found, "stderr") == "end\n"


def check_displays(client):
    _, found = run(
        client,
        "handle = display('one', display_id='name')\nprint('between')\nhandle.update('two')\n"
        "display({'image/png': 'iVBORw0KGgo='}, metadata={'image/png': {'width': 3}}, raw=True)\n"
        "from IPython.display import clear_output\nclear_output(wait=True)",
    )
    found = found[1:]
    assert kinds(found) == ["display_data", "stream", "update_display_data", "display_data", "clear_output"], found
    assert found[0][1]["transient"] == {"display_id": "name"} and found[2][1]["transient"] == {"display_id": "name"}
    assert found[2][1]["data"] == {"text/plain": "'two'"}, found[2]
    assert found[3][1]["metadata"] == {"image/png": {"width": 3}}, found[3]
    assert found[4][1] == {"wait": True}
    # Another cell's display.
    _, found = run(client, "handle.update('three')")
    assert kinds(found) == ["execute_input", "update_display_data"], found


def check_questions(client):
    run(client, "class Thing:\n    '''What it is for.'''\n    colour = 'red'\nthing = Thing()\nλ_long_name = 1")
    reply = reply_to(client, client.complete("'😀', thing.co"))
    assert "colour" in [match.rpartition(".")[2] for match in reply["matches"]], reply
    start, end = reply["cursor_start"], reply["cursor_end"]
    assert "'😀', thing.co"[start:end] in (".co", "co", "thing.co"), reply
    reply = reply_to(client, client.complete("λ_lo"))
    assert reply["matches"] == ["λ_long_name"], reply
    reply = reply_to(client, client.inspect("thing.colour + 1", 3))
    assert reply["found"] and "What it is for." in reply["data"]["text/plain"], reply
    assert not reply_to(client, client.inspect("nothing_of_this_name"))["found"]
    # The session's own code may answer a request.
    run(client, "class Odd:\n    def __dir__(self): raise SystemExit\n    __getattr__ = lambda self, name: 1 / 0\nodd = Odd()")
    assert reply_to(client, client.complete("odd."))["status"] in ("ok", "error")
    run(client, "class Slow:\n    def __dir__(self):\n        while True: pass\nslow = Slow()")
    assert reply_to(client, client.complete("slow."))["status"] in ("ok", "error")
    reply, found = run(client, "thing.colour")
    assert found[-1][1]["data"]["text/plain"] == "'red'", "the kernel did not live on"
    reply = reply_to(client, client.is_complete("for x in y:"))
    assert reply == {"status": "incomplete", "indent": "    "}, reply
    reply = reply_to(client, client.comm_info())
    assert reply == {"status": "ok", "comms": {}}, reply


def check_input(client):
    name = client.execute("from getpass import getpass\nprint(input('name? ') + getpass('word? '))", allow_stdin=True)
    asked = client.get_stdin_msg(timeout=REPLY_TIMEOUT)["content"]
    assert asked == {"prompt": "name? ", "password": False}, asked
    client.input("Ada ")
    asked = client.get_stdin_msg(timeout=REPLY_TIMEOUT)["content"]
    assert asked == {"prompt": "word? ", "password": True}, asked
    client.input("secret")
    assert reply_to(client, name)["status"] == "ok"
    assert text(outputs(client, name)) == "Ada secret\n"
    reply, _ = run(client, "input()", allow_stdin=False)
    assert reply["ename"] == "StdinNotImplementedError", reply


def check_interrupts(manager, client):
    for code in ("while True: pass", "import time\ntime.sleep(1000)", "input('never answered')"):
        # An interrupt must not affect the next cell.
        name = client.execute(f"print('begun')\n{code}", allow_stdin=True)
        while client.get_iopub_msg(timeout=REPLY_TIMEOUT)["msg_type"] != "stream":
            pass
        manager.interrupt_kernel()
        reply = reply_to(client, name)
        assert reply["status"] == "error" and reply["ename"] == "KeyboardInterrupt", (code, reply)
        # The interrupt has a channel of its own, and its reply comes when it has arrived.
        client.control_channel.send(client.session.msg("interrupt_request", {}))
        client.get_control_msg(timeout=REPLY_TIMEOUT)
        reply, _ = run(client, "1 + 1")
        assert reply["status"] == "ok", reply
    while True:
        try:
            client.get_stdin_msg(timeout=0.1)
        except Empty:
            break


def check_order_after_an_error(client):
    names = [client.execute(code, stop_on_error=True) for code in ("import time\ntime.sleep(1)\n1 / 0", "late = 1", "late")]
    replies = [reply_to(client, name)["status"] for name in names]
    assert replies == ["error", "aborted", "aborted"], replies
    reply, _ = run(client, "'late' in globals()")
    assert reply["status"] == "ok"
    names = [client.execute(code, stop_on_error=False) for code in ("import time\ntime.sleep(1)\n1 / 0", "late = 1")]
    assert [reply_to(client, name)["status"] for name in names] == ["error", "ok"]


def check_death(client):
    run(client, "open('kept.txt', 'w').write('kept')\nlost = 1")
    reply, found = run(client, "import os\nos._exit(3)")
    assert reply["status"] == "error" and "variables are lost" in reply["evalue"], reply
    _, found = run(client, "print(open('kept.txt').read(), 'lost' in globals())")
    assert text(found) == "kept False\n", found


def main():
    manager, client = start(sys.argv[1])
    try:
        assert client.is_alive() and manager.is_alive()
        check_cells(client)
        check_displays(client)
        check_questions(client)
        check_input(client)
        check_interrupts(manager, client)
        check_order_after_an_error(client)
        check_death(client)
        time.sleep(1.5)
        deadline = time.monotonic() + REPLY_TIMEOUT
        while not client.hb_channel.is_beating():
            assert time.monotonic() < deadline, "the heart does not beat"
            time.sleep(0.1)
        manager.restart_kernel()
        client.wait_for_ready(timeout=REPLY_TIMEOUT)
        reply, _ = run(client, "x")
        assert reply["ename"] == "NameError", reply
        # A busy kernel shuts down, too.
        client.execute("while True: pass")
        time.sleep(0.5)
        begin = time.monotonic()
        process = manager.provisioner.process
        manager.shutdown_kernel()
        assert process.returncode == 0 and time.monotonic() - begin < 120, process.returncode
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)


main()
