"""A network namespace whose resolver changes its answers.

Usage: ``unshare -rmn python3 changing_names.py PROGRAM ARGUMENT…``. The loopback interface has a public address, too,
and a server listens on every address. The program runs with a resolver that gives names of the tests a public address
in its first answer and loopback in all others, or both at once. Printed as JSON: the output of the program, the
addresses at which connections arrived, and the names that were looked up.
"""

import fcntl
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

PUBLIC = "93.184.215.14"
UNREACHABLE = "93.184.215.15"
PORT = 8080

ADDRESS, ADDRESS_6 = 1, 28
"""The types of records, A and AAAA."""


def answers(name: str, kind: int, number: int) -> list[bytes]:
    """Returns the addresses of a name in the answer with this number."""
    loopback = socket.inet_aton("127.0.0.1")
    if name == "changing.example.com" and kind == ADDRESS:
        return [socket.inet_aton(PUBLIC) if number == 1 else loopback]
    if name == "both.example.com" and kind == ADDRESS:
        return [socket.inet_aton(UNREACHABLE), loopback]
    if name == "mapped.example.com" and kind == ADDRESS_6:
        return [bytes(10) + b"\xff\xff" + loopback]
    return []


def configure_interface() -> None:
    """Starts the loopback interface and gives it the public address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        is_up = struct.pack("16sh14x", b"lo", 1)
        fcntl.ioctl(control, 0x8914, is_up)  # SIOCSIFFLAGS
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(PUBLIC))
        fcntl.ioctl(control, 0x8916, address)  # SIOCSIFADDR
        mask = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, b"\xff" * 4)
        fcntl.ioctl(control, 0x891C, mask)  # SIOCSIFNETMASK


def replace_files(folder: Path) -> None:
    """Makes the resolver of this namespace that of the machine."""
    for path, text in (("/etc/resolv.conf", "nameserver 127.0.0.1\n"), ("/etc/nsswitch.conf", "hosts: dns\n")):
        if Path(path).exists():
            own = folder / Path(path).name
            own.write_text(text)
            subprocess.run(["mount", "--bind", own, path], check=True)


def serve_names(server: socket.socket, seen: list[str]) -> None:
    """Answers look-ups, and notes those for addresses of IPv4."""
    counts: Counter[tuple[str, int]] = Counter()
    while True:
        query, client = server.recvfrom(4096)
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name, kind = ".".join(labels).lower(), int.from_bytes(query[at + 1 : at + 3], "big")
        counts[name, kind] += 1
        if kind == ADDRESS:
            seen.append(name)
        found = answers(name, kind, counts[name, kind])
        head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, len(found), 0, 0)
        records = [struct.pack("!HHHIH", 0xC00C, kind, 1, 0, len(data)) + data for data in found]
        server.sendto(head + query[12 : at + 5] + b"".join(records), client)


def serve_connections(server: socket.socket, arrived: list[str]) -> None:
    """Sends each client the address at which it arrived."""
    while True:
        connection, _ = server.accept()
        with connection:
            address = connection.getsockname()[0]
            arrived.append(address)
            connection.sendall(address.encode())


def main() -> None:
    configure_interface()
    seen: list[str] = []
    arrived: list[str] = []
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    server = socket.create_server(("0.0.0.0", PORT))
    threading.Thread(target=serve_names, args=(names, seen), daemon=True).start()
    threading.Thread(target=serve_connections, args=(server, arrived), daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        replace_files(Path(folder))
        run = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
        for path in ("/etc/resolv.conf", "/etc/nsswitch.conf"):
            if Path(path).exists():
                subprocess.run(["umount", path], check=True)
    print(json.dumps({"status": run.returncode, "output": run.stdout, "arrived": arrived, "names": seen}))


if __name__ == "__main__":
    main()
