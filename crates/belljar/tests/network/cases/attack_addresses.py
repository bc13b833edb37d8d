# Ways to connect to what the policy does not allow. The canary is a server on 127.0.0.1 that records each connection.
import socket

CANARY = PORT_canary


def attempt(host, port=CANARY, family=socket.AF_UNSPEC):
    """Connects, sends a request, and prints how that ends."""
    try:
        if family == socket.AF_UNSPEC:
            plain = socket.create_connection((host, port), timeout=60)
        else:
            plain = socket.socket(family)
            plain.settimeout(60)
            plain.connect((host, port))
        with plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            print("connected", plain.recv(100))
    except PermissionError:
        print("not allowed")
    except socket.gaierror:
        print("not a name")
    except (OSError, ValueError, OverflowError, TypeError) as error:
        print(type(error).__name__)


# %% Loopback as an address
attempt("127.0.0.1")
#> not allowed
# %% Loopback as another address of its block
attempt("127.1.2.3")
#> not allowed
# %% Loopback as an integer
attempt("2130706433")
#> not …
# %% Loopback in hexadecimal digits
attempt("0x7f000001")
attempt("0x7f.0.0.1")
#> not …
#> not …
# %% Loopback in octal digits
attempt("0177.0.0.1")
attempt("017700000001")
#> not …
#> not …
# %% Loopback in a short form
attempt("127.1")
attempt("0")
#> not …
#> not …
# %% Loopback with leading zeros
attempt("127.000.000.001")
#> not …
# %% The unspecified address
attempt("0.0.0.0")
attempt("")
#> not allowed
#> …
# %% Loopback of IPv6
attempt("::1")
#> not allowed
# %% A socket of IPv6
attempt("::1", family=socket.AF_INET6)
attempt("::ffff:127.0.0.1", family=socket.AF_INET6)
#> …
#> …
# %% Loopback mapped into IPv6
attempt("::ffff:127.0.0.1")
attempt("::ffff:7f00:1")
#> not allowed
#> not allowed
# %% Loopback embedded in IPv6: compatible, NAT64, 6to4
for address in ("::127.0.0.1", "64:ff9b::127.0.0.1", "2002:7f00:1::"):
    attempt(address)
#> not allowed
#> not allowed
#> not allowed
# %% IPv6 with a zone
attempt("::1%lo")
attempt("fe80::1%1")
#> not …
#> not …
# %% The metadata service
attempt("169.254.169.254", 80)
attempt("fd00:ec2::254", 80)
attempt("metadata.google.internal", 80)
#> not allowed
#> not allowed
#> not allowed
# %% A name that the policy allows and the host's resolver leads to loopback
attempt("localhost")
#> not allowed
# %% The same name in other spellings
for name in ("LOCALHOST", "localhost.", "LocalHost."):
    attempt(name)
#> not allowed
#> not allowed
#> not allowed
# %% Names of loopback that the policy does not allow
for name in ("localhost.localdomain", "ip6-localhost", "127.0.0.1.nip.io"):
    attempt(name)
#> not allowed
#> not allowed
#> not allowed
# %% A name with a byte zero, which C would cut
attempt("api.example.com\0.evil.example", PORT_https)
#> …
# %% A name with characters of URLs
for name in ("api.example.com#", "api.example.com/", "user@127.0.0.1", "127.0.0.1:80", " 127.0.0.1", "127.0.0.1\n"):
    attempt(name)
#> not …
#> not …
#> not …
#> not …
#> not …
#> not …
# %% Digits and dots of other scripts
for name in ("１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1", "ⓛocalhost"):
    attempt(name)
#> not …
#> not …
#> not …
#> not …
# %% Overlong names and labels
attempt("a" * 300 + ".example.com")
attempt(".".join(["a" * 60] * 1000))
#> …
#> …
# %% Ports beyond their range, which would wrap around
for port in (CANARY + 65536, -1, CANARY - 65536):
    attempt("api.example.com", port)
#> not a name
#> not a name
#> not a name
# %% The synthetic address of an allowed name, with another port
address = socket.gethostbyname("api.example.com")
print(address.startswith("198.18."))
attempt(address)
attempt("::ffff:" + address)
#> True
#> not allowed
#> not allowed
# %% The synthetic addresses of other names
address = socket.gethostbyname("api.example.com")
start, last = address.rsplit(".", 1)
for number in range(int(last) + 1, int(last) + 4):
    attempt(f"{start}.{number}", PORT_https)
attempt("198.19.255.254", PORT_https)
attempt("fd62:656c:6c6a::ffff", PORT_https)
#> not allowed
#> not allowed
#> not allowed
#> not allowed
#> not allowed
# %% A second connection of the same socket
with socket.create_connection(("api.example.com", PORT_echo), timeout=60) as plain:
    try:
        plain.connect(("127.0.0.1", CANARY))
        print("connected")
    except OSError as error:
        print(type(error).__name__)
    plain.sendall(b"x")
    print(plain.recv(10))
#> …Error
#> b'x'
# %% The module below `socket`
import _socket

try:
    plain = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    plain.connect(("127.0.0.1", CANARY))
    print("connected")
except PermissionError:
    print("not allowed")
#> not allowed
# %% connect_ex and sockets that do not block
import errno
import select

with socket.socket() as plain:
    print(errno.errorcode[plain.connect_ex(("127.0.0.1", CANARY))])
with socket.socket() as plain:
    plain.setblocking(False)
    result = plain.connect_ex(("localhost", CANARY))
    if result == errno.EINPROGRESS:
        select.select([plain], [plain], [plain], 10)
        result = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    print(errno.errorcode[result])
#> EACCES
#> EACCES
# %% Functions of C, called by hand
import ctypes
import struct

try:
    libc = ctypes.CDLL(None)
    descriptor = libc.socket(2, 1, 0)
    address = struct.pack("<H", 2) + struct.pack(">H", CANARY) + socket.inet_aton("127.0.0.1") + bytes(8)
    print(libc.connect(descriptor, address, len(address)))
except (AttributeError, OSError) as error:
    print("not available")
#> …
# %% An address structure that is cut off, or of another family
plain = socket.socket()
for address in (("127.0.0.1",), (b"\x7f\0\0\1", CANARY), ("127.0.0.1", str(CANARY)), "127.0.0.1"):
    try:
        plain.connect(address)
        print("connected")
    except (OSError, TypeError, ValueError) as error:
        print(type(error).__name__)
#> TypeError
#> …Error
#> TypeError
#> …Error
# %% Sockets of other families and kinds
for family, kind in (("AF_UNIX", "SOCK_STREAM"), ("AF_INET", "SOCK_DGRAM"), ("AF_INET", "SOCK_RAW")):
    try:
        socket.socket(getattr(socket, family), getattr(socket, kind))
        print("opened", family, kind)
    except (OSError, AttributeError) as error:
        print("refused")
#> refused
#> refused
#> refused
# %% Pairs of sockets and descriptors of others
try:
    print(socket.socketpair())
except OSError:
    print("refused")
for descriptor in (0, 1, 2, 50):
    try:
        socket.socket(fileno=descriptor).getpeername()
        print("a socket")
    except OSError:
        pass
#> …
# %% Files that are connections in shells, and the host's tables of connections
for path in (f"/dev/tcp/127.0.0.1/{CANARY}", "/proc/net/tcp", "/etc/resolv.conf", "/var/run/docker.sock"):
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
#> FileNotFoundError
#> FileNotFoundError
#> FileNotFoundError
#> FileNotFoundError
# %% Programs of the system
import subprocess

for program in (["curl", f"http://127.0.0.1:{CANARY}/"], ["nc", "127.0.0.1", str(CANARY)]):
    try:
        print(subprocess.run(program, capture_output=True, timeout=60).stdout)
    except OSError as error:
        print("no processes")
#> no processes
#> no processes
# %% Proxies by environment variables
import os
import urllib.request

for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY"):
    os.environ[name] = f"http://127.0.0.1:{CANARY}"
for url in ("http://api.example.com:PORT_http/csv", "https://api.example.com:PORT_https/csv"):
    try:
        print(urllib.request.urlopen(url, timeout=60).read())
    except OSError as error:
        print("127.0.0.1" in str(error))
#> True
#> True
# %% A proxy on a port that the policy allows
import urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://api.example.com:PORT_http"}))
try:
    print(opener.open(f"http://127.0.0.1:{CANARY}/", timeout=60).read())
except OSError as error:
    print("refused")
#> refused
# %% CONNECT through a server that the policy allows
import http.client

connection = http.client.HTTPConnection("api.example.com", PORT_http, timeout=60)
connection.set_tunnel("127.0.0.1", CANARY)
try:
    connection.request("GET", "/")
    print(connection.getresponse().read())
except OSError as error:
    print("refused")
#> refused
# %% DNS over TCP, over TLS and over HTTPS
for host, port in (("8.8.8.8", 53), ("1.1.1.1", 853), ("dns.google", 443)):
    attempt(host, port)
#> not allowed
#> not allowed
#> not allowed
# %% Data in names of look-ups that are refused
for index in range(3):
    try:
        socket.getaddrinfo(f"data-{index}.evil.example", 443)
        print("looked up")
    except PermissionError:
        print("not allowed")
#> not allowed
#> not allowed
#> not allowed
# %% Reverse look-ups
try:
    print(socket.gethostbyaddr("127.0.0.1")[0])
except OSError as error:
    print("refused")
try:
    print(socket.getnameinfo(("8.8.8.8", 80), 0)[0] == "8.8.8.8")
except OSError as error:
    print("refused")
#> …
#> …
# %% asyncio with addresses, and with a socket of its own
import asyncio


async def main():
    for host in ("127.0.0.1", "localhost", "::1"):
        try:
            await asyncio.open_connection(host, CANARY)
            print("connected")
        except OSError:
            print("not allowed")
    try:
        await asyncio.start_server(lambda *streams: None, "127.0.0.1", 0)
        print("listens")
    except OSError:
        print("cannot listen")
    try:
        await asyncio.get_running_loop().create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("8.8.8.8", 53))
        print("sent")
    except (OSError, NotImplementedError):
        print("no datagrams")


asyncio.run(main())
#> not allowed
#> not allowed
#> not allowed
#> cannot listen
#> no datagrams
# %% The patched functions are put back
import importlib

importlib.reload(socket)
attempt("127.0.0.1")
attempt("localhost")
#> not allowed
#> not allowed
# %% FTP: a server that names another address for its data
import ftplib

ftp = ftplib.FTP()
ftp.host, ftp.af, ftp.timeout, ftp.trust_server_pasv_ipv4_address = "api.example.com", socket.AF_INET, 10, True
ftp.sock = socket.create_connection(("api.example.com", PORT_echo), timeout=60)
ftp.file = ftp.sock.makefile("r", encoding="latin-1")
high, low = divmod(CANARY, 256)
# The echo server answers with what the client sends.
ftp.sendcmd = lambda command: f"227 Entering passive mode (127,0,0,1,{high},{low})"
try:
    ftp.ntransfercmd("RETR file")
    print("connected")
except PermissionError:
    print("not allowed")
#> not allowed
# %% Redirects to loopback, by each of their statuses
import urllib.request

for status in (301, 302, 303, 307, 308):
    try:
        url = f"http://api.example.com:PORT_http/redirect?status={status}&to=http://127.0.0.1:{CANARY}/"
        urllib.request.urlopen(url, timeout=60)
        print("followed")
    except OSError as error:
        print("not allowed" in str(error))
#> True
#> True
#> True
#> True
#> True
# %% Many attempts at once do not find a gap
from concurrent.futures import ThreadPoolExecutor


def connects(index):
    try:
        socket.create_connection(("localhost" if index % 2 else "127.0.0.1", CANARY), timeout=60)
        return True
    except OSError:
        return False


with ThreadPoolExecutor(16) as pool:
    print(any(pool.map(connects, range(100))))
#> False
