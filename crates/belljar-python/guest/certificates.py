"""Decoding of X.509 certificates to the dictionaries of `ssl.SSLSocket.getpeercert` (RFC 5280, in DER)."""

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

_NAMES = {
    "2.5.4.3": "commonName",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "countryName",
    "2.5.4.7": "localityName",
    "2.5.4.8": "stateOrProvinceName",
    "2.5.4.9": "streetAddress",
    "2.5.4.10": "organizationName",
    "2.5.4.11": "organizationalUnitName",
    "1.2.840.113549.1.9.1": "emailAddress",
    "0.9.2342.19200300.100.1.25": "domainComponent",
}
_SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
_ALTERNATIVES = {0x81: "email", 0x82: "DNS", 0x86: "URI", 0x87: "IP Address"}
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def decode(encoded: bytes) -> dict[str, Any]:
    """Returns the parts of a certificate that `getpeercert` documents.

    Raises `ValueError` for data that is not a certificate.
    """
    try:
        return _decode(encoded)
    except (IndexError, StopIteration, RuntimeError) as error:
        raise ValueError("the certificate is not valid DER") from error


def _decode(encoded: bytes) -> dict[str, Any]:
    _, certificate = next(_elements(encoded))
    _, body = next(_elements(certificate))
    parts = list(_elements(body))
    version = 1
    if parts[0][0] == 0xA0:
        version = 1 + int.from_bytes(next(_elements(parts.pop(0)[1]))[1], "big")
    serial, _, issuer, validity, subject = (part for _, part in parts[:5])
    begin, end = _elements(validity)
    result: dict[str, Any] = {
        "subject": _name(subject),
        "issuer": _name(issuer),
        "version": version,
        "serialNumber": f"{int.from_bytes(serial, 'big'):X}",
        "notBefore": _time(*begin),
        "notAfter": _time(*end),
    }
    for tag, part in parts[6:]:
        if tag == 0xA3 and (names := _alternatives(part)):
            result["subjectAltName"] = names
    return result


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Returns the tag and contents of each element."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError("the certificate is cut off")
        yield tag, data[at : at + length]
        at += length


def _object_identifier(data: bytes) -> str:
    numbers, value = [], 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _name(data: bytes) -> tuple[Any, ...]:
    names = []
    for _, relative in _elements(data):
        pairs = []
        for _, attribute in _elements(relative):
            (_, kind), (tag, value) = _elements(attribute)
            identifier = _object_identifier(kind)
            encoding = "utf-16-be" if tag == 0x1E else "utf-8"
            pairs.append((_NAMES.get(identifier, identifier), value.decode(encoding, "replace")))
        names.append(tuple(pairs))
    return tuple(names)


def _time(tag: int, data: bytes) -> str:
    """Returns a time as OpenSSL prints it: ``Jan  5 09:34:43 2018 GMT``."""
    text = data.decode("ascii")
    # Years of two digits are those from 1950 to 2049.
    text = ("19" if text >= "5" else "20") + text if tag == 0x17 else text
    time = datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return f"{_MONTHS[time.month - 1]} {time.day:2} {time:%H:%M:%S} {time.year} GMT"


def _alternatives(data: bytes) -> tuple[tuple[str, str], ...]:
    names = []
    for _, extension in _elements(next(_elements(data))[1]):
        fields = list(_elements(extension))
        if _object_identifier(fields[0][1]) != _SUBJECT_ALTERNATIVE_NAME:
            continue
        for tag, value in _elements(next(_elements(fields[-1][1]))[1]):
            if kind := _ALTERNATIVES.get(tag):
                text = str(ipaddress.ip_address(value)) if kind == "IP Address" else value.decode("ascii", "replace")
                names.append((kind, text))
    return tuple(names)
