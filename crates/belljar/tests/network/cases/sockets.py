import errno
import select
import selectors
import socket
import threading
import time

API = "api.example.com"


def connect(port=PORT_echo, timeout=120):
    return socket.create_connection((API, port), timeout=timeout)


# %% Bytes come back, and half of a connection can be closed
with connect() as plain:
    plain.sendall(b"hello")
    print(plain.recv(100))
    plain.shutdown(socket.SHUT_WR)
    print(plain.recv(100), plain.recv(100))
#> b'hello'
#> b'[5]' b''
# %% Files of sockets
with connect() as plain, plain.makefile("rwb") as file:
    file.write(b"one\ntwo\n")
    file.flush()
    print(file.readline(), file.readline())
#> b'one\n' b'two\n'
# %% Peeking leaves the bytes
with connect() as plain:
    plain.sendall(b"abc")
    print(plain.recv(3, socket.MSG_PEEK), plain.recv(2), plain.recv(5))
#> b'abc' b'ab' b'c'
# %% Other forms of receiving and sending
with connect() as plain:
    plain.sendmsg([b"ab", b"cd"])
    buffer = bytearray(4)
    print(plain.recv_into(buffer, 2), plain.recv_into(memoryview(buffer)[2:]), bytes(buffer))
#> 2 2 b'abcd'
# %% Names and addresses of both ends
with connect() as plain:
    host, port = plain.getpeername()
    print(port, socket.getaddrinfo(API, port)[0][4][0] == host, plain.family.name, plain.fileno() > 2)
    print(plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), plain.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
#> PORT_echo True AF_INET True
#> 0 1
# %% Nothing listens
try:
    connect(PORT_closed)
except ConnectionRefusedError as error:
    print(error.errno == errno.ECONNREFUSED)
#> True
# %% A refused connection by connect_ex
with socket.socket() as plain:
    print(plain.connect_ex((API, PORT_closed)) == errno.ECONNREFUSED)
#> True
# %% The server resets
with connect(PORT_reset) as plain:
    plain.sendall(b"x")
    try:
        while plain.recv(10):
            pass
        print("end")
    except ConnectionResetError as error:
        print("reset")
#> reset
# %% Time limits of a silent server
with connect(PORT_silent) as plain:
    plain.settimeout(0.2)
    begin = time.monotonic()
    try:
        plain.recv(1)
    except socket.timeout as error:
        print(type(error).__name__, error, time.monotonic() - begin >= 0.2)
#> TimeoutError timed out True
# %% Sockets that do not block
with socket.socket() as plain:
    plain.setblocking(False)
    print(plain.connect_ex((API, PORT_echo)) in (0, errno.EINPROGRESS))
    _, writable, _ = select.select([], [plain], [], 20)
    print(writable == [plain], plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    try:
        plain.recv(1)
    except BlockingIOError:
        print("nothing yet")
    plain.send(b"abc")
    readable, _, _ = select.select([plain], [], [], 20)
    print(readable == [plain], plain.recv(10))
#> True
#> True 0
#> nothing yet
#> True b'abc'
# %% Selectors return the one of several sockets that is ready
with selectors.DefaultSelector() as selector:
    sockets = [connect() for _ in range(10)]
    for index, plain in enumerate(sockets):
        selector.register(plain, selectors.EVENT_READ, index)
    print(selector.select(0))
    sockets[7].sendall(b"x")
    print([key.data for key, _ in selector.select(20)])
    for plain in sockets:
        plain.close()
#> []
#> [7]
# %% poll
with connect() as plain:
    poll = select.poll()
    poll.register(plain, select.POLLIN | select.POLLOUT)
    print(poll.poll(1000) == [(plain.fileno(), select.POLLOUT)])
#> True
# %% More than the buffers hold, written by one thread and read by another
with connect() as plain:
    received = bytearray()

    def read():
        while len(received) < 3_000_000:
            received.extend(plain.recv(65536))

    reader = threading.Thread(target=read)
    reader.start()
    data = bytes(range(250)) * 12_000
    plain.sendall(data)
    reader.join()
    print(received == data)
#> True
# %% IPv6
with socket.create_connection(("::1", PORT_https6), timeout=120) as plain:
    plain.close()
import urllib.request

print(urllib.request.urlopen("https://[::1]:PORT_https6/csv").read()[:4])
#> b'name'
# %% An address that the policy names
with socket.create_connection(("127.0.0.1", PORT_echo), timeout=120) as plain:
    plain.sendall(b"hi")
    print(plain.recv(10))
#> b'hi'
# %% A closed socket
plain = connect()
plain.close()
try:
    plain.recv(1)
except OSError as error:
    print(error.errno == errno.EBADF)
#> True
# %% A socket that is not connected
with socket.socket() as plain:
    try:
        plain.send(b"x")
    except OSError as error:
        print(errno.errorcode[error.errno])
#> ENOTCONN
# %% Many connections one after the other, whose descriptors are closed
print(len({connect().close() for _ in range(300)}))
#> 1
# %% asyncio: streams, many at once
import asyncio


async def echo(index):
    reader, writer = await asyncio.open_connection(API, PORT_echo)
    writer.write(b"%d" % index)
    writer.write_eof()
    data = await reader.read()
    writer.close()
    await writer.wait_closed()
    return data


async def main():
    answers = await asyncio.gather(*map(echo, range(40)))
    print(answers == [b"%d[%d]" % (index, len(str(index))) for index in range(40)])


asyncio.run(main())
#> True
# %% asyncio: socket functions of the loop
import asyncio


async def main():
    loop = asyncio.get_running_loop()
    with socket.socket() as plain:
        plain.setblocking(False)
        await loop.sock_connect(plain, (API, PORT_echo))
        await loop.sock_sendall(plain, b"hello")
        print(await loop.sock_recv(plain, 100))
    print((await loop.getaddrinfo(API, PORT_echo, type=socket.SOCK_STREAM))[0][4][1])


asyncio.run(main())
#> b'hello'
#> PORT_echo
# %% asyncio: time limits, cancelled waits and refused connections
import asyncio


async def main():
    reader, writer = await asyncio.open_connection(API, PORT_silent)
    try:
        async with asyncio.timeout(0.2):
            await reader.read(1)
    except TimeoutError:
        print("too late")
    task = asyncio.create_task(reader.read(1))
    await asyncio.sleep(0.05)
    task.cancel()
    print((await asyncio.gather(task, return_exceptions=True))[0].__class__.__name__)
    writer.close()
    try:
        await asyncio.open_connection(API, PORT_closed)
    except ConnectionRefusedError:
        print("refused")


asyncio.run(main())
#> too late
#> CancelledError
#> refused
