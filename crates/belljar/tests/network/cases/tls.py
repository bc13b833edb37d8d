import socket
import ssl
import urllib.error
import urllib.request

API = "api.example.com"


def tls(port, context=None, name=API):
    return (context or ssl.create_default_context()).wrap_socket(
        socket.create_connection((API, port), timeout=120), server_hostname=name
    )


def verification(port, name=API):
    try:
        tls(port, name=name)
    except ssl.SSLCertVerificationError as error:
        print(error.verify_code, error.verify_message, "|", error.reason, error.library)
        print(error)


# %% A connection has a version, a cipher and a certificate
with tls(PORT_https) as secure:
    print(secure.version(), secure.cipher()[1:], secure.selected_alpn_protocol(), secure.server_hostname)
    certificate = secure.getpeercert()
    print(certificate["subject"], certificate["notAfter"])
    print(certificate["subjectAltName"][0], len(secure.getpeercert(True)) > 200)
#> TLSv1.3 ('TLSv1.3', 256) None api.example.com
#> ((('commonName', '*.example.com'),),) Jan  1 00:00:00 2100 GMT
#> ('DNS', '*.example.com') True
# %% An expired certificate
verification(PORT_expired)
#> 10 certificate has expired | CERTIFICATE_VERIFY_FAILED SSL
#> [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired…
# %% A certificate that is not valid yet
verification(PORT_future)
#> 9 certificate is not yet valid | CERTIFICATE_VERIFY_FAILED SSL
#> [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid…
# %% A certificate for another name
verification(PORT_wrong_name)
#> 62 Hostname mismatch, certificate is not valid for 'api.example.com'. | CERTIFICATE_VERIFY_FAILED SSL
#> [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch…
# %% A self-signed certificate
verification(PORT_self_signed)
#> 18 self-signed certificate | CERTIFICATE_VERIFY_FAILED SSL
#> [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate…
# %% An unknown certificate authority
verification(PORT_unknown)
#> 20 unable to get local issuer certificate | CERTIFICATE_VERIFY_FAILED SSL
#> [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate…
# %% urllib wraps errors of certificates
try:
    urllib.request.urlopen("https://api.example.com:PORT_expired/hello")
except urllib.error.URLError as error:
    print(type(error.reason).__name__, error.reason.verify_message)
#> SSLCertVerificationError certificate has expired
# %% Verification can be turned off where no secrets are
context = ssl.create_default_context()
context.check_hostname = False
context.verify_mode = ssl.CERT_NONE
for port in (PORT_expired, PORT_wrong_name, PORT_self_signed, PORT_unknown):
    with tls(port, context) as secure:
        secure.sendall(b"GET /csv HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n")
        print(secure.recv(12), secure.getpeercert())
#> b'HTTP/1.1 200' {}
#> b'HTTP/1.1 200' {}
#> b'HTTP/1.1 200' {}
#> b'HTTP/1.1 200' {}
# %% A program can bring a certificate authority of its own
pem = ssl.get_server_certificate((API, PORT_self_signed))
context = ssl.create_default_context(cadata=pem)
with tls(PORT_self_signed, context) as secure:
    print(secure.version())
#> TLSv1.3
# %% A plain server is not one of TLS
try:
    tls(PORT_http)
except ssl.SSLError as error:
    print(type(error).__name__)
#> SSLError
# %% A server that does not answer the handshake runs into the time limit
try:
    plain = socket.create_connection((API, PORT_silent), timeout=0.5)
    ssl.create_default_context().wrap_socket(plain, server_hostname=API)
except TimeoutError as error:
    print(type(error).__name__, error)
#> TimeoutError …timed out
# %% Bytes go both ways and the stream ends
with tls(PORT_tls_echo) as secure:
    secure.sendall(b"x" * 100_000)
    count = 0
    while count < 100_000:
        count += len(secure.recv(5000))
    print(count, secure.pending())
#> 100000 0
# %% TLS begins in the middle of a connection
plain = socket.create_connection((API, PORT_smtp), timeout=120)
lines = plain.makefile("rb")
print(lines.readline())
plain.sendall(b"STARTTLS\r\n")
print(lines.readline())
secure = ssl.create_default_context().wrap_socket(plain, server_hostname=API)
secure.sendall(b"NOOP\r\n")
print(secure.recv(100))
#> b'220 mail.example.com ESMTP\r\n'
#> b'220 go ahead\r\n'
#> b'250 fine\r\n'
# %% Memory buffers carry TLS over a program's own socket
plain = socket.create_connection((API, PORT_tls_echo), timeout=120)
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
secure = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=API)


def drive(operation):
    while True:
        try:
            result = operation()
            plain.sendall(outgoing.read())
            return result
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(4096))


drive(secure.do_handshake)
drive(lambda: secure.write(b"hello"))
print(drive(lambda: secure.read(5)), secure.version())
#> b'hello' TLSv1.3
# %% Sockets that do not block want to read
plain = socket.create_connection((API, PORT_tls_echo), timeout=120)
plain.setblocking(False)
secure = ssl.create_default_context().wrap_socket(plain, server_hostname=API, do_handshake_on_connect=False)
import select

while True:
    try:
        secure.do_handshake()
        break
    except ssl.SSLWantReadError:
        select.select([secure], [], [], 10)
try:
    secure.recv(10)
except ssl.SSLWantReadError:
    print("wants to read")
print(secure.send(b"abc"))
select.select([secure], [], [], 10)
print(secure.recv(10))
#> wants to read
#> 3
#> b'abc'
# %% TLS within asyncio: streams and an upgrade of a plain stream
import asyncio


async def main():
    reader, writer = await asyncio.open_connection(API, PORT_tls_echo, ssl=True)
    writer.write(b"hello")
    await writer.drain()
    print(await reader.readexactly(5), writer.get_extra_info("ssl_object").version())
    writer.close()
    reader, writer = await asyncio.open_connection(API, PORT_smtp)
    print(await reader.readline())
    writer.write(b"STARTTLS\r\n")
    print(await reader.readline())
    await writer.start_tls(ssl.create_default_context(), server_hostname=API)
    writer.write(b"NOOP\r\n")
    print(await reader.readline())
    try:
        await asyncio.open_connection(API, PORT_expired, ssl=True)
    except ssl.SSLCertVerificationError as error:
        print(error.verify_message)


asyncio.run(main())
#> b'hello' TLSv1.3
#> b'220 mail.example.com ESMTP\r\n'
#> b'220 go ahead\r\n'
#> b'250 fine\r\n'
#> certificate has expired
