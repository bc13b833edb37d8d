"""ftplib: its data connections are to addresses that the server names, which the policy does not allow."""

import ftplib

try:
    ftplib.FTP("ftp.example.org", timeout=120)
    raise AssertionError
except PermissionError as error:
    assert "network access to ftp.example.org:21 is not allowed" in str(error), error
