"""TLS by the host: the classes of `ssl` that Pyodide's module leaves without a function.

The host makes the connections, and it makes TLS, too, so that it can check requests and put secrets into them. The
program asks for TLS within the stream: a request that begins with a token, which only this interpreter and the host
know, is sent instead of a handshake, and the host's reply is the first that is received. All later bytes are plain text
between the program and the host, and TLS between the host and the server. Sockets and pairs of `MemoryBIO`, such as
asyncio's, work in the same way.
"""

import socket
import ssl
from collections.abc import Callable
from typing import Any, NoReturn

from .tls_streams import MemoryBIO, SSLObject, SSLSocket

_PUBLIC_CERTIFICATES = ("certifi/cacert.pem", "/etc/ssl/cert.pem", "/etc/ssl/certs/ca-certificates.crt")
"""Files of public certificate authorities, which the host knows as well."""


class SSLSession:
    """A session that could be resumed, which no connection has: each has its own."""


class SSLContext:
    """The settings of connections. Certificates are verified by the host, with its own certificate authorities."""

    sslsocket_class: Any = None
    sslobject_class: Any = None

    def __new__(cls, protocol: int | None = None, *args: Any, **options: Any) -> SSLContext:
        self = super().__new__(cls)
        chosen = ssl.PROTOCOL_TLS if protocol is None else protocol
        self._protocol = ssl._SSLMethod(chosen)  # type: ignore[attr-defined]
        is_client = self._protocol == ssl.PROTOCOL_TLS_CLIENT
        self._check_hostname = is_client
        self._verify_mode = ssl.CERT_REQUIRED if is_client else ssl.CERT_NONE
        self._authorities: list[str] = []
        self._alpn: list[str] = []
        self.options = ssl.OP_ALL | ssl.OP_NO_SSLv3
        self.verify_flags = ssl.VerifyFlags.VERIFY_X509_TRUSTED_FIRST
        self.minimum_version = ssl.TLSVersion.TLSv1_2
        self.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
        self.hostname_checks_common_name = False
        self.post_handshake_auth = False
        self.keylog_filename: str | None = None
        self.num_tickets = 2
        self.security_level = 2
        self.sni_callback: Callable[..., Any] | None = None
        return self

    def __init__(self, protocol: int | None = None) -> None:
        pass

    @property
    def protocol(self) -> Any:
        return self._protocol

    @property
    def check_hostname(self) -> bool:
        return self._check_hostname

    @check_hostname.setter
    def check_hostname(self, value: object) -> None:
        if value and self._verify_mode == ssl.CERT_NONE:
            self._verify_mode = ssl.CERT_REQUIRED
        self._check_hostname = bool(value)

    @property
    def verify_mode(self) -> Any:
        return self._verify_mode

    @verify_mode.setter
    def verify_mode(self, value: int) -> None:
        if value == ssl.CERT_NONE and self._check_hostname:
            raise ValueError("Cannot set verify_mode to CERT_NONE when check_hostname is enabled.")
        self._verify_mode = ssl.VerifyMode(value)

    def load_verify_locations(self, cafile: Any = None, capath: Any = None, cadata: Any = None) -> None:
        if cafile is None and capath is None and cadata is None:
            raise TypeError("cafile, capath and cadata cannot be all omitted")
        if cafile is not None:
            with open(cafile, encoding="ascii", errors="replace") as file:
                text = file.read()
            if "BEGIN CERTIFICATE" not in text and "BEGIN TRUSTED" not in text:
                raise ssl.SSLError(1, "[X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found")
            if not str(cafile).endswith(_PUBLIC_CERTIFICATES):
                self._authorities.append(text)
        if isinstance(cadata, str):
            self._authorities.append(cadata)
        elif cadata is not None:
            self._authorities.append(ssl.DER_cert_to_PEM_cert(bytes(cadata)))

    def load_default_certs(self, purpose: Any = None) -> None:
        pass

    def set_default_verify_paths(self) -> None:
        pass

    def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> NoReturn:
        raise ssl.SSLError("certificates of clients and servers are not supported: TLS is made by the host")

    def load_dh_params(self, path: Any) -> None:
        pass

    def set_ciphers(self, ciphers: str) -> None:
        if not isinstance(ciphers, str):
            raise TypeError("set_ciphers() argument must be str")

    def get_ciphers(self) -> list[dict[str, Any]]:
        names = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
        return [{"name": name, "protocol": "TLSv1.3"} for name in names]

    def set_ecdh_curve(self, name: Any) -> None:
        pass

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        self._alpn = [str(each, "ascii") if isinstance(each, bytes) else str(each) for each in alpn_protocols]

    def set_npn_protocols(self, npn_protocols: Any) -> None:
        pass

    def set_servername_callback(self, server_name_callback: Any) -> None:
        self.sni_callback = server_name_callback

    def session_stats(self) -> dict[str, int]:
        return {}

    def cert_store_stats(self) -> dict[str, int]:
        return {"x509": len(self._authorities), "crl": 0, "x509_ca": len(self._authorities)}

    def get_ca_certs(self, binary_form: bool = False) -> list[Any]:
        return []

    def wrap_socket(
        self,
        sock: Any,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | None = None,
        session: Any = None,
    ) -> SSLSocket:
        return self.sslsocket_class._create(
            sock=sock,
            server_side=server_side,
            do_handshake_on_connect=do_handshake_on_connect,
            suppress_ragged_eofs=suppress_ragged_eofs,
            server_hostname=server_hostname,
            context=self,
            session=session,
        )

    def wrap_bio(
        self,
        incoming: MemoryBIO,
        outgoing: MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: Any = None,
    ) -> SSLObject:
        return self.sslobject_class._create(
            incoming, outgoing, server_side=server_side, server_hostname=server_hostname, session=session, context=self
        )


SSLContext.sslsocket_class = SSLSocket
SSLContext.sslobject_class = SSLObject


def install() -> None:
    """Replaces the classes of `ssl`, and the functions that create contexts."""
    for each in (MemoryBIO, SSLSession, SSLContext, SSLObject, SSLSocket):
        each.__module__ = "ssl"
        setattr(ssl, each.__name__, each)
    ssl.create_default_context = _create_default_context
    ssl._create_unverified_context = ssl._create_stdlib_context = _create_unverified_context  # type: ignore[assignment]
    ssl._create_default_https_context = _create_default_context
    ssl.get_server_certificate = _get_server_certificate
    ssl.get_default_verify_paths = _get_default_verify_paths


def _create_default_context(
    purpose: Any = None, *, cafile: Any = None, capath: Any = None, cadata: Any = None
) -> SSLContext:
    """Returns a context that verifies certificates, as `ssl.create_default_context` does."""
    context = SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if cafile or capath or cadata:
        context.load_verify_locations(cafile, capath, cadata)
    return context


def _create_unverified_context(protocol: Any = None, **options: Any) -> SSLContext:
    """Returns a context that verifies no certificates, unless the options say so."""
    context = SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(options.get("check_hostname", False))
    context.verify_mode = options.get("cert_reqs") or (ssl.CERT_REQUIRED if context.check_hostname else ssl.CERT_NONE)
    if cafile := options.get("cafile"):
        context.load_verify_locations(cafile)
    return context


def _get_default_verify_paths() -> ssl.DefaultVerifyPaths:
    """Returns OpenSSL's paths, where there are no files: the host has the certificate authorities."""
    file, directory = "/usr/lib/ssl/cert.pem", "/usr/lib/ssl/certs"
    return ssl.DefaultVerifyPaths(None, None, "SSL_CERT_FILE", file, "SSL_CERT_DIR", directory)


def _get_server_certificate(
    addr: tuple[str, int], ssl_version: Any = None, ca_certs: Any = None, timeout: Any = None
) -> str:
    """Returns a server's certificate as PEM, as `ssl.get_server_certificate` does."""
    context = _create_unverified_context(cafile=ca_certs, cert_reqs=ssl.CERT_REQUIRED if ca_certs else ssl.CERT_NONE)
    with socket.create_connection(addr, timeout) as plain, context.wrap_socket(plain, server_hostname=addr[0]) as each:
        return ssl.DER_cert_to_PEM_cert(each.getpeercert(True))
