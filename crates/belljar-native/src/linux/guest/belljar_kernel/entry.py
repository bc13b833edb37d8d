"""Enter an idle sandbox, from a process that was forked for it.

This module performs the steps of a plan, in order: system calls that the plan names by number. The plan is computed by
the crate `belljar-sandbox`, which documents its format (`Entry`), so that only that crate knows the purpose of the
calls. A step that fails ends the process, and is reported by name.
"""

import array
import ctypes
import json
import os
import socket

__all__ = ["become_reaper", "enter"]

_PR_SET_CHILD_SUBREAPER = 36
_MAX_DESCRIPTOR = 0xFFFFFFFF

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Filter(ctypes.Structure):
    """A ``struct sock_fprog``: the number of instructions, and a pointer to them."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


class _StepError(Exception):
    """A step of the plan failed."""

    def __init__(self, step: str, errno: int | None) -> None:
        super().__init__(step, errno)
        self.step = step
        self.errno = errno


def become_reaper() -> None:
    """Makes this process a subreaper: the parent of its descendants whose own parent has ended.

    Those are the processes that have entered sandboxes.
    """
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))


def enter(plan: dict, descriptors: list[int]) -> None:
    """Enters the sandbox of `plan`; returns only inside, in a new process.

    `descriptors` are the descriptors of the plan, in order. All descriptors of this process but the standard streams
    are closed: objects that own any must be detached before.
    """
    report = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptors[0])
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write(str(plan["oom_score_adj"]))
        _perform(plan["before"], descriptors)
        pid = os.fork()
        if pid != 0:
            _send(report, {"Forked": pid}, os.pidfd_open(pid))
            os._exit(0)
        _perform(plan["after"], descriptors)
        _set_streams(plan["streams"], descriptors)
        os.environ.clear()
        os.environ.update(plan["environment"])
        seal = [(step["name"], _prepare(step, descriptors)) for step in plan["seal"]]
        _close_all_but(report.fileno(), plan["close_range"])
        for name, (arguments, _) in seal:
            _call(name, arguments)
        _send(report, "Entered")
        report.close()
    except BaseException as error:  # After any error, this process must not run the code.
        step = getattr(error, "step", None) or f"{type(error).__name__}: {error}"
        try:
            _send(report, {"Failed": {"step": step, "errno": getattr(error, "errno", None)}})
        finally:
            os._exit(125)


def _perform(steps: list[dict], descriptors: list[int]) -> None:
    for step in steps:
        arguments, _alive = _prepare(step, descriptors)
        _call(step["name"], arguments)


def _call(name: str, arguments: list) -> None:
    if _libc.syscall(*arguments) < 0:
        raise _StepError(name, ctypes.get_errno())


def _prepare(step: dict, descriptors: list[int]) -> tuple[list, list]:
    """Converts a step to arguments of ``syscall``, and the objects that must stay alive during the call."""
    arguments: list = [ctypes.c_long(step["number"])]
    alive: list = []
    for argument in step["arguments"]:
        ((kind, value),) = argument.items()
        if kind == "number":
            arguments.append(ctypes.c_long(value))
        elif kind == "descriptor":
            arguments.append(ctypes.c_long(descriptors[value]))
        elif kind == "text":
            arguments.append(ctypes.c_char_p(os.fsencode(value)))
        elif kind == "bytes":
            arguments.append(ctypes.create_string_buffer(bytes.fromhex(value)))
        elif kind == "filter":
            instructions = ctypes.create_string_buffer(bytes.fromhex(value))
            length = len(bytes.fromhex(value)) // 8
            filter_ = _Filter(length, ctypes.cast(instructions, ctypes.c_void_p))
            alive.append(instructions)
            arguments.append(ctypes.byref(filter_))
        else:
            raise _StepError(f"unknown argument kind {kind!r}", None)
    return arguments, alive


def _set_streams(streams: list[int | None], descriptors: list[int]) -> None:
    for number, index in enumerate(streams):
        source = os.open("/dev/null", os.O_RDWR) if index is None else descriptors[index]
        os.dup2(source, number)


def _close_all_but(kept: int, close_range: int) -> None:
    for first, last in [(3, kept - 1), (kept + 1, _MAX_DESCRIPTOR)]:
        if first <= last:
            _call("close_range", [ctypes.c_long(number) for number in (close_range, first, last, 0)])


def _send(report: socket.socket, message: object, descriptor: int | None = None) -> None:
    ancillary = []
    if descriptor is not None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    report.sendmsg([json.dumps(message).encode()], ancillary)
