"""Write a wheel: NAME VERSION DIRECTORY, and on standard input its modules as JSON, path to source."""

import base64
import hashlib
import json
import sys
import zipfile

name, version, directory = sys.argv[1:]
files = json.loads(sys.stdin.read())
info = f"{name}-{version}.dist-info"
requires = "".join(f"Requires-Dist: {line}\n" for line in files.pop("requires", []))
files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
record = ""
with zipfile.ZipFile(f"{directory}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    for path, text in files.items():
        wheel.writestr(path, text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
