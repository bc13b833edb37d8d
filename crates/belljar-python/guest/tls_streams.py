"""Streams whose TLS the host makes: the protocol of `tls`, over sockets and over pairs of buffers."""

import errno
import socket
import ssl
from base64 import b64decode
from collections.abc import Callable
from json import dumps, loads
from typing import Any, NoReturn

from . import host

_MAX_REPLY = 1 << 20
_LENGTH = 4
"""The number of bytes of the length before a reply."""
_VERIFY_FAILED = "CERTIFICATE_VERIFY_FAILED"


class MemoryBIO:
    """A buffer of bytes between a program and TLS."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._is_closed = False

    @property
    def pending(self) -> int:
        return len(self._data)

    @property
    def eof(self) -> bool:
        return self._is_closed and not self._data

    def read(self, n: int = -1, /) -> bytes:
        data = bytes(self._data if n is None or n < 0 else self._data[:n])
        del self._data[: len(data)]
        return data

    def write(self, buffer: Any, /) -> int:
        if self._is_closed:
            raise ssl.SSLError("cannot write() after write_eof()")
        data = memoryview(buffer).cast("B")
        self._data += data
        return len(data)

    def write_eof(self) -> None:
        self._is_closed = True


class _Handshake:
    """The request to make TLS, and what the host has replied."""

    def __init__(self, context: Any, server_side: bool, server_hostname: str | bytes | None) -> None:
        if server_side:
            raise ValueError("TLS servers are not supported: nothing can listen in this sandbox")
        if isinstance(server_hostname, bytes):
            server_hostname = server_hostname.decode("ascii")
        if server_hostname is not None and not server_hostname:
            raise ValueError("server_hostname cannot be an empty string or start with a leading dot.")
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        self.context = context
        self.server_hostname = server_hostname
        self.reply: dict[str, Any] | None = None

    def request(self) -> bytes:
        """Returns the request, which begins with the token."""
        try:
            token = bytes.fromhex(host.call("network_token"))
        except host.HostCallError as error:
            raise ssl.SSLError(f"TLS is not available: {error}") from None
        context = self.context
        minimum = context.minimum_version
        body = {
            "server_hostname": self.server_hostname,
            "alpn": context._alpn,
            "verify": context.verify_mode != ssl.CERT_NONE,
            "check_hostname": context.check_hostname,
            "ca": "\n".join(context._authorities) or None,
            "minimum": "TLSv1.3" if minimum == ssl.TLSVersion.TLSv1_3 else "TLSv1.2",
        }
        text = dumps(body).encode()
        return token + len(text).to_bytes(_LENGTH, "big") + text

    def finish(self, text: bytes) -> None:
        """Takes the reply, and raises its error."""
        reply = loads(text)
        if (error := reply.get("error")) is not None:
            raise _error(error)
        self.reply = reply

    def certificate(self, binary_form: bool) -> Any:
        """Returns the server's certificate as `getpeercert` does."""
        if self.reply is None:
            raise ValueError("handshake not done yet")
        if not (chain := self.reply["certificates"]):
            return None
        encoded = b64decode(chain[0])
        if binary_form:
            return encoded
        from . import certificates

        return certificates.decode(encoded) if self.context.verify_mode != ssl.CERT_NONE else {}

    def chain(self) -> list[bytes]:
        """Returns the encoded certificates that the server has sent."""
        return [b64decode(each) for each in self.reply["certificates"]] if self.reply is not None else []

    def get(self, name: str) -> Any:
        """Returns a field of the reply; None before it."""
        value = None if self.reply is None else self.reply[name]
        return tuple(value) if isinstance(value, list) else value


def _error(error: dict[str, Any]) -> OSError:
    """Returns the exception for an error of the host."""
    message = str(error["message"])
    if error["kind"] == "refused":
        return PermissionError(errno.EACCES, message)
    if error["kind"] == "certificate":
        reason = str(error.get("verify_message") or message)
        text = f"[SSL: {_VERIFY_FAILED}] certificate verify failed: {reason}"
        failure = ssl.SSLCertVerificationError(1, text)
        failure.verify_code = int(error.get("verify_code") or 1)
        failure.verify_message = reason
        failure.reason = _VERIFY_FAILED
    else:
        failure = ssl.SSLError(1, f"[SSL] {message}")  # type: ignore[assignment]
        failure.reason = "TLS"
    failure.library = "SSL"
    return failure


class _Connection:
    """The attributes that sockets and objects have in common."""

    _handshake: _Handshake
    _session: Any = None

    @property
    def context(self) -> Any:
        return self._handshake.context

    @context.setter
    def context(self, context: Any) -> None:
        self._handshake.context = context

    @property
    def server_hostname(self) -> str | None:
        return self._handshake.server_hostname

    @property
    def server_side(self) -> bool:
        return False

    @property
    def session(self) -> Any:
        return self._session

    @session.setter
    def session(self, session: Any) -> None:
        self._session = session

    @property
    def session_reused(self) -> bool:
        return False

    def getpeercert(self, binary_form: bool = False) -> Any:
        return self._handshake.certificate(binary_form)

    def get_verified_chain(self) -> list[bytes]:
        return self._handshake.chain()

    def get_unverified_chain(self) -> list[bytes]:
        return self._handshake.chain()

    def selected_alpn_protocol(self) -> str | None:
        return self._handshake.get("alpn")

    def selected_npn_protocol(self) -> None:
        return None

    def cipher(self) -> Any:
        return self._handshake.get("cipher")

    def shared_ciphers(self) -> None:
        return None

    def compression(self) -> None:
        return None

    def version(self) -> str | None:
        return self._handshake.get("version")

    def get_channel_binding(self, cb_type: str = "tls-unique") -> None:
        if cb_type not in ssl.CHANNEL_BINDING_TYPES:
            raise ValueError(f"{cb_type} channel binding type not implemented")

    def verify_client_post_handshake(self) -> NoReturn:
        raise ssl.SSLError("certificates of clients are not supported")


class SSLObject(_Connection):
    """TLS over a pair of buffers."""

    _incoming: MemoryBIO
    _outgoing: MemoryBIO
    _is_requested = False

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not have a public constructor. Use SSLContext.wrap_bio().")

    @classmethod
    def _create(
        cls,
        incoming: MemoryBIO,
        outgoing: MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: Any = None,
        context: Any = None,
    ) -> SSLObject:
        self = cls.__new__(cls)
        self._handshake = _Handshake(context, server_side, server_hostname)
        self._incoming, self._outgoing, self._session = incoming, outgoing, session
        self._reply = bytearray()
        return self

    def do_handshake(self) -> None:
        if self._handshake.reply is not None:
            return
        if not self._is_requested:
            self._outgoing.write(self._handshake.request())
            self._is_requested = True
        self._receive(_LENGTH)
        length = int.from_bytes(self._reply[:_LENGTH], "big")
        if length > _MAX_REPLY:
            raise ssl.SSLError("the host's reply is too long")
        self._receive(_LENGTH + length)
        self._handshake.finish(bytes(self._reply[_LENGTH:]))

    def _receive(self, size: int) -> None:
        """Reads the reply up to its first ``size`` bytes."""
        self._reply += self._incoming.read(max(0, size - len(self._reply)))
        if len(self._reply) < size:
            if self._incoming.eof:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol")
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)")

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        self.do_handshake()
        data = self._incoming.read(len)
        if not data and len and not self._incoming.eof:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)")
        if buffer is None:
            return data
        count = memoryview(data).nbytes
        buffer[:count] = data
        return count

    def write(self, data: Any) -> int:
        self.do_handshake()
        return self._outgoing.write(data)

    def pending(self) -> int:
        return self._incoming.pending

    def unwrap(self) -> None:
        pass


class SSLSocket(_Connection, socket.socket):
    """TLS over a socket, which belongs to this object from then on."""

    suppress_ragged_eofs = True
    do_handshake_on_connect = True

    def __init__(self, *args: Any, **options: Any) -> None:
        raise TypeError(f"{type(self).__name__} does not have a public constructor. Use SSLContext.wrap_socket().")

    @classmethod
    def _create(
        cls,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | None = None,
        context: Any = None,
        session: Any = None,
    ) -> SSLSocket:
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) != socket.SOCK_STREAM:
            raise NotImplementedError("only stream sockets are supported")
        handshake = _Handshake(context, server_side, server_hostname)
        if isinstance(sock, SSLSocket):
            raise ssl.SSLError("TLS within TLS is not supported")
        self = cls.__new__(cls)
        timeout = sock.gettimeout()
        socket.socket.__init__(self, family=sock.family, type=sock.type, proto=sock.proto, fileno=sock.fileno())
        self.settimeout(timeout)
        sock.detach()
        self._handshake, self._session = handshake, session
        self.suppress_ragged_eofs = suppress_ragged_eofs
        self.do_handshake_on_connect = do_handshake_on_connect
        try:
            self.getpeername()
            self._connected = True
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                self.close()
                raise
            self._connected = False
        if self._connected and do_handshake_on_connect:
            if timeout == 0.0:
                self.close()
                raise ValueError("do_handshake_on_connect should not be specified for non-blocking sockets")
            try:
                self.do_handshake()
            except BaseException:
                self.close()
                raise
        return self

    _request: bytes | None = None
    _reply = b""

    @property
    def _sslobj(self) -> SSLSocket | None:
        """The object that CPython's class has inside, from which httpcore takes the protocol."""
        return self if self._connected else None

    def do_handshake(self, block: bool = False) -> None:
        if self._handshake.reply is not None:
            return
        timeout = self.gettimeout()
        try:
            if timeout == 0.0 and block:
                self.settimeout(None)
            if self._request is None:
                self._request = self._handshake.request()
            while self._request:
                self._request = self._request[self._plain(super().send, self._request) :]
            self._receive(_LENGTH)
            length = int.from_bytes(self._reply[:_LENGTH], "big")
            if length > _MAX_REPLY:
                raise ssl.SSLError("the host's reply is too long")
            self._receive(_LENGTH + length)
        finally:
            self.settimeout(timeout)
        self._handshake.finish(self._reply[_LENGTH:])

    def _receive(self, size: int) -> None:
        """Reads the reply up to its first ``size`` bytes, and no byte of what follows."""
        while len(self._reply) < size:
            data = self._plain(super().recv, size - len(self._reply))
            if not data:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "EOF occurred in violation of protocol")
            self._reply += data

    @staticmethod
    def _plain(operation: Callable[..., Any], *arguments: Any) -> Any:
        """Runs an operation on the plain socket."""
        try:
            return operation(*arguments)
        except BlockingIOError:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)") from None

    def _check(self, flags: int, name: str) -> None:
        if flags != 0:
            raise ValueError(f"non-zero flags not allowed in calls to {name}() on {type(self)}")
        if self._handshake.reply is None:
            self.do_handshake()

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        return self.recv(len) if buffer is None else self.recv_into(buffer, len)

    def write(self, data: Any) -> int:
        return self.send(data)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        self._check(flags, "recv")
        return self._plain(super().recv, buflen)

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        self._check(flags, "recv_into")
        return self._plain(super().recv_into, buffer, nbytes or 0)

    def send(self, data: Any, flags: int = 0) -> int:
        self._check(flags, "send")
        return self._plain(super().send, data)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self._check(flags, "sendall")
        self._plain(super().sendall, data)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        self._check(0, "sendfile")
        return self._sendfile_use_send(file, offset, count)  # type: ignore[attr-defined]

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(f"not allowed on instances of {type(self)}")

    recvfrom = recvfrom_into = sendto = sendmsg = _refuse  # type: ignore[assignment]
    recvmsg = recvmsg_into = dup = accept = _refuse  # type: ignore[assignment]

    def connect(self, addr: Any) -> None:
        if self._connected:
            raise ValueError("attempt to connect already-connected SSLSocket!")
        super().connect(addr)
        self._connected = True
        if self.do_handshake_on_connect:
            self.do_handshake()

    def connect_ex(self, addr: Any) -> int:
        result = super().connect_ex(addr)
        if result == 0:
            self._connected = True
            if self.do_handshake_on_connect:
                self.do_handshake()
        return result

    def pending(self) -> int:
        return 0

    def unwrap(self) -> socket.socket:
        if self._handshake.reply is None:
            raise ValueError(f"No SSL wrapper around {self}")
        plain = socket.socket(family=self.family, type=self.type, proto=self.proto, fileno=self.fileno())
        plain.settimeout(self.gettimeout())
        self.detach()
        return plain
