"""Finishes a wheel for a release: leaves out the workspace's path, and compresses the files as small as DEFLATE allows.

Arguments: the wheel and the directory of the workspace, which maturin writes into the names of the SBOM.

The compressors of archives stop at zlib's level 9. libdeflate searches further at its level 12, which takes a minute
for a wheel and saves 3 to 6 %. Names, order, times and modes stay the same.
"""

import base64
import csv
import hashlib
import io
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import deflate

LEVEL = 12
# The versions of the format that DEFLATE needs, and the bit of names in UTF-8.
VERSION = 20
UTF_8 = 0x800
UNIX = 3
# Larger archives and files need ZIP64, which wheels do without.
MAX_SIZE = 0xFFFF_FFFF
# The workspace's directory in the names of the SBOM, as in programs.
DIRECTORY = "file:///belljar"


def contents(archive: zipfile.ZipFile, workspace: Path) -> dict[str, bytes]:
    """Returns the files of a wheel. Its SBOM does not name the workspace, and `RECORD` has the SBOM's new hash."""
    files = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    changed = {}
    for name, content in files.items():
        if ".dist-info/sboms/" in name:
            changed[name] = content.replace(workspace.as_uri().encode(), DIRECTORY.encode())
    files.update(changed)
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    lines = io.StringIO()
    for row in csv.reader(io.StringIO(files[record].decode())):
        if (content := changed.get(row[0])) is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            row[1:] = [f"sha256={digest}", str(len(content))]
        csv.writer(lines, lineterminator="\n").writerow(row)
    files[record] = lines.getvalue().encode()
    return files


def dos_time(date_time: tuple[int, int, int, int, int, int]) -> tuple[int, int]:
    """Returns the time and the date of a file as the format has them."""
    year, month, day, hour, minute, second = date_time
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day


def compressed(content: bytes) -> tuple[int, bytes]:
    """Returns the method and the data of a file."""
    data = deflate.deflate_compress(content, LEVEL)
    return (zipfile.ZIP_DEFLATED, data) if len(data) < len(content) else (zipfile.ZIP_STORED, content)


def recompress(source: Path, target: Path, workspace: Path) -> None:
    """Writes a copy of a wheel whose files are compressed again."""
    directory = b""
    with zipfile.ZipFile(source) as archive, target.open("wb") as file:
        entries, files = archive.infolist(), contents(archive, workspace)
        for entry in entries:
            content = files[entry.filename]
            method, data = compressed(content)
            name = entry.filename.encode()
            flags = 0 if name.isascii() else UTF_8
            checked = (zlib.crc32(content), len(data), len(content))
            time, date = dos_time(entry.date_time)
            shared = struct.pack("<5H3LHH", VERSION, flags, method, time, date, *checked, len(name), 0)
            offset = file.tell()
            file.write(b"PK\x03\x04" + shared + name + data)
            made_by = struct.pack("<H", UNIX << 8 | VERSION)
            rest = struct.pack("<HHHLL", 0, 0, 0, entry.external_attr, offset)
            directory += b"PK\x01\x02" + made_by + shared + rest + name
        start = file.tell()
        if start + len(directory) > MAX_SIZE:
            sys.exit(f"{source} is too large")
        end = struct.pack("<4HLLH", 0, 0, len(entries), len(entries), len(directory), start, 0)
        file.write(directory + b"PK\x05\x06" + end)


def check(source: Path, target: Path, workspace: Path) -> None:
    """Ends the program with an error if the wheels have different files."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target) as after:
        files = contents(before, workspace)
        for old, new in zip(before.infolist(), after.infolist(), strict=True):
            described = [(entry.filename, entry.date_time, entry.external_attr) for entry in (old, new)]
            if described[0] != described[1] or files[old.filename] != after.read(new):
                sys.exit(f"{old.filename} differs after compression")


if __name__ == "__main__":
    wheel, workspace = Path(sys.argv[1]), Path(sys.argv[2])
    smaller = wheel.with_suffix(".smaller")
    recompress(wheel, smaller, workspace)
    check(wheel, smaller, workspace)
    smaller.replace(wheel)
