"""Sends requests to a worker that no client sends: `attacks.py WORKER`. Each is refused, and the worker goes on."""

import struct
import subprocess
import sys

OK, COMPLETE, ERROR, FUNCTION_CALL, FATAL = 10, 6, 7, 2, 11
CONFIGURE, INSTALL, FEED, RESUME_CALL, RESUME_NAME, RESUME_FUTURES, DUMP, LOAD, RESET, SHUTDOWN, ABORT = range(1, 12)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def field(number: int, content: bytes | int) -> bytes:
    """Encodes a field: a message, a text or bytes; or an integer."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def fields(message: bytes) -> dict[int, bytes | int]:
    """Returns the last field of each number in a message."""
    found: dict[int, bytes | int] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = number()
        if key & 7 == 0:
            found[key >> 3] = number()
        elif key & 7 == 1:
            found[key >> 3] = message[at : at + 8]
            at += 8
        else:
            length = number()
            found[key >> 3] = message[at : at + length]
            at += length
    return found


class Worker:
    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen([path, "subprocess"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send_bytes(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def event(self) -> tuple[int, str]:
        """Returns the number of the next event that ends a turn, and its text if it is an error."""
        while True:
            (length,) = struct.unpack("<I", self.process.stdout.read(4))
            message = fields(self.process.stdout.read(length))
            (kind,) = (number for number in message if number < 20)
            if kind == 1:
                continue
            text = ""
            if kind == ERROR:
                exception = fields(fields(message[ERROR])[1])
                text = exception.get(2, b"").decode()
            elif kind == FATAL:
                text = fields(message[FATAL])[1].decode()
            return kind, text

    def ask(self, kind: int, content: bytes = b"") -> tuple[int, str]:
        return self.ask_raw(field(kind, content))

    def ask_raw(self, request: bytes) -> tuple[int, str]:
        self.send_bytes(struct.pack("<I", len(request)) + request)
        return self.event()

    def refuses(self, text: str, kind: int, content: bytes = b"") -> None:
        answer = self.ask(kind, content)
        assert answer[0] == ERROR and text in answer[1], (text, answer)

    def runs(self) -> None:
        assert self.ask(FEED, field(1, b"1 + 1"))[0] == COMPLETE


def configure(version: int = 6, name: bytes = b"main.py") -> bytes:
    return field(1, name) + field(9, version)


def arena(*nodes: bytes) -> bytes:
    return b"".join(field(2, node) for node in nodes)


def feed(code: bytes, *nodes: bytes, roots: tuple[int, ...] = (0,)) -> bytes:
    inputs = b"".join(field(2, field(1, b"x%d" % root) + field(2, root)) for root in roots)
    return field(1, code) + inputs + field(3, arena(*nodes))


def main(path: str) -> None:
    for version in (0, 1, 4, 7, 2**31):
        kind, text = Worker(path).ask(CONFIGURE, configure(version))
        assert kind == FATAL and str(version) in text, (kind, text)

    worker = Worker(path)
    # Requests in the wrong order.
    for kind in (FEED, INSTALL, RESUME_CALL, RESUME_NAME, RESUME_FUTURES, ABORT, DUMP):
        worker.refuses("not been configured", kind)
    assert worker.ask(RESET)[0] == OK
    assert worker.ask(CONFIGURE, configure(5))[0] == OK
    worker.refuses("already", CONFIGURE, configure())
    for kind in (RESUME_CALL, RESUME_NAME, RESUME_FUTURES, ABORT):
        worker.refuses("no feed is suspended", kind)
    for request in (b"", field(99, b""), b"\xff" * 20, field(FEED, b"\x0a\x7f"), field(FEED, field(3, b"\x12\xff"))):
        kind, text = worker.ask_raw(request)
        assert kind == ERROR, (request, kind, text)

    # Values: containers that contain themselves or what comes later, unknown kinds, identities, bounds.
    none = field(2, b"")
    for nodes, reason in [
        ((field(11, field(1, b"\x00")),), "does not come before"),
        ((field(11, field(1, varint(2**32 - 1))),), "does not come before"),
        ((field(14, field(1, field(1, 5))),), "does not come before"),
        ((field(13, field(2, b"a")),), "another number of names"),
        ((b"",), "missing or unknown"),
        ((field(99, b""),), "missing or unknown"),
        ((field(29, b"text"),), "cannot be passed"),
        ((field(30, b"[...]"),), "cannot be passed"),
        ((none, field(24, field(1, 0) + field(2, field(1, b"x" * 16)))), "not a type"),
        ((field(23, field(1, b"A") + field(3, 3) + field(2, field(1, b"short"))),), "16 bytes"),
        ((field(23, field(1, b"int") + field(3, 0)),), "origin"),
    ]:
        worker.refuses(reason, FEED, feed(b"1", *nodes))
    worker.refuses("refers to value 7", FEED, feed(b"1", none, roots=(7,)))
    # Values that only the code can refuse.
    for node in (field(17, field(1, 99999) + field(2, 13)), field(33, b"not a number"), field(26, b"no_such_builtin")):
        assert worker.ask(FEED, feed(b"1", node))[0] == ERROR
    unhashable = (field(11, b""), field(15, field(1, b"\x00")))
    worker.refuses("unhashable", FEED, feed(b"1", *unhashable, roots=(1,)))
    deep = [field(11, b"")] + [field(11, field(1, varint(at))) for at in range(20_000)]
    assert worker.ask(FEED, feed(b"x20000[0][0] is not None", *deep, roots=(20_000,)))[0] == COMPLETE
    worker.refuses("more than", FEED, field(3, b"\x12\x00" * 2_000_001))
    worker.runs()

    # Answers that do not answer the question.
    def begin(code: bytes = b"await f(1)") -> int:
        assert worker.ask(FEED, field(1, code))[0] == FUNCTION_CALL
        return 0

    value = field(3, arena(none))
    identity = 0
    for code in (b"await f(1)", b"def g():\n    return f(1)\ng()"):
        begin(code)
        for kind in (RESUME_NAME, FEED if code == b"await f(1)" else RESUME_NAME):
            assert worker.ask(kind, field(1, b"1") if kind == FEED else field(3, b""))[0] == ERROR
        worker.refuses("waits for call", RESUME_CALL, field(1, 77) + field(2, field(1, 0)) + value)
        worker.refuses("missing", RESUME_CALL, field(1, identity))
        worker.refuses("refers to value 3", RESUME_CALL, field(1, identity) + field(2, field(1, 3)) + value)
        worker.refuses("NotHandled", RESUME_CALL, field(1, identity) + field(2, field(5, b"")))
        worker.refuses("waits for call", RESUME_CALL, field(1, identity) + field(2, field(3, identity + 1)))
        worker.refuses("has no exception", ABORT)
        answer = worker.ask(RESUME_CALL, field(1, identity) + field(2, field(1, 0)) + value)
        assert answer[0] == COMPLETE, answer
        identity += 1

    # An aborted feed ends, whatever the code does.
    exception = field(1, field(1, b"ValueError") + field(2, b"stop"))
    for code in (
        b"await f(1)",
        b"def g():\n    return f(1)\ng()",
        b"try:\n    await f(1)\nexcept BaseException:\n    await f(2)",
        b"while True:\n    try:\n        await f(1)\n    except BaseException:\n        pass",
    ):
        begin(code)
        kind, text = worker.ask(ABORT, exception)
        assert kind == ERROR and (text == "stop" or "lost" in text), (kind, text)
        worker.runs()

    # Hostile code: calls of the host that only this package makes.
    code = b"""
import sys
host = sys.modules['_belljar.host']
for name in ('monty:now', 'monty:later', 'other'):
    for question in ('{"future": 12345}', '{"function": 1}', '[]', '{"os": {"call": {"sleep": {"seconds": 1}}}', 'x'):
        try:
            host.call_host('{"name":"call_function","request":{"name":"%s","wait":true,"buffers":[],"arguments":[[%s],{}]}}'
                           % (name, question))
        except Exception as error:
            pass
1
"""
    kind, text = worker.ask(FEED, field(1, code))
    assert kind in (COMPLETE, ERROR), (kind, text)
    assert worker.ask(RESET)[0] == OK
    assert worker.ask(CONFIGURE, configure())[0] == OK
    for state in (b"", b"bj-monty1", b"bj-monty1" + bytes(100), b"\xff" * 1000):
        worker.refuses("", LOAD, field(1, state))
    worker.runs()
    worker.refuses("has not begun", LOAD, field(1, b""))
    assert worker.ask(SHUTDOWN)[0] == OK
    assert worker.process.wait(30) == 0

    # Frames that are too long or end early end the worker.
    for data in (b"\xff\xff\xff\xff", b"\x05\x00\x00\x00ab"):
        worker = Worker(path)
        worker.send_bytes(data)
        worker.process.stdin.close()
        worker.process.wait(30)
    # The end of standard input ends code that runs.
    worker = Worker(path)
    assert worker.ask(CONFIGURE, configure())[0] == OK
    request = field(FEED, field(1, b"while True: pass"))
    worker.send_bytes(struct.pack("<I", len(request)) + request)
    worker.process.stdin.close()
    worker.process.wait(30)


main(sys.argv[1])
