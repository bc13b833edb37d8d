"""A zygote: a Python with its imports done, which forks a process for each plan that it receives on standard input."""

import array
import json
import os
import socket
import struct
import sys

sys.path.insert(0, sys.argv[1])

import attacks
import entry


def receive(control):
    """Receive a plan, its descriptors and the code to run; return None when the other side has closed the socket."""
    head, ancillary, _, _ = control.recvmsg(8, socket.CMSG_SPACE(64 * 4))
    if not head:
        return None
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data)
    plan_length, code_length = struct.unpack("=II", head)
    text = b""
    while len(text) < plan_length + code_length:
        text += control.recv(65536)
    return json.loads(text[:plan_length]), list(descriptors), text[plan_length:].decode()


def main():
    entry.become_reaper()
    control = socket.socket(fileno=0)
    while (received := receive(control)) is not None:
        plan, descriptors, code = received
        first = os.fork()
        if first == 0:
            control.detach()
            entry.enter(plan, descriptors)
            exec(code, {"attacks": attacks})
            sys.stdout.flush()
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        # The fork, and the process inside, whose parent becomes this process.
        for _ in range(2):
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break


main()
