import errno
import socket
import urllib.error
import urllib.request

CANARY = PORT_canary


def refusal(host, port=443):
    try:
        socket.create_connection((host, port), timeout=120)
        print("connected")
    except PermissionError as error:
        print(errno.errorcode[error.errno], error.strerror.split(";")[0])
    except OSError as error:
        print(type(error).__name__)


def status(url, **options):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, **options)) as response:
            print(response.status)
    except urllib.error.HTTPError as error:
        print(error.code, error.read().decode().strip())
    except urllib.error.URLError as error:
        print(type(error.reason).__name__, str(error.reason).split(";")[0])


# %% Names that the policy does not name
refusal("elsewhere.example.org")
refusal("example.com")
refusal("xapi.example.com")
refusal("api.example.com.evil.example", PORT_https)
#> EACCES network access to elsewhere.example.org:443 is not allowed
#> EACCES network access to example.com:443 is not allowed
#> EACCES network access to xapi.example.com:443 is not allowed
#> EACCES network access to api.example.com.evil.example:PORT_https is not allowed
# %% The error names what is allowed
try:
    socket.create_connection(("elsewhere.example.org", 443))
except PermissionError as error:
    print(str(error).partition("; allowed: ")[2][:200])
#> api.example.com:…
# %% Ports that the policy does not name
refusal("api.example.com", 443)
refusal("api.example.com", CANARY)
#> EACCES network access to api.example.com:443 is not allowed
#> EACCES network access to api.example.com:PORT_canary is not allowed
# %% A name that is allowed but resolves to loopback
refusal("localhost", CANARY)
#> EACCES network access to localhost:PORT_canary is not allowed: …loopback…
# %% A name that resolves to a subnet that is denied
refusal("denied.example.com", CANARY)
#> EACCES network access to denied.example.com:PORT_canary is not allowed: …
# %% Addresses that the policy does not name
for address in ("127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254", "192.168.0.1", "8.8.8.8", "::1"):
    refusal(address, CANARY)
#> EACCES network access to 127.0.0.1:PORT_canary is not allowed
#> EACCES network access to 0.0.0.0:PORT_canary is not allowed
#> EACCES network access to 10.0.0.1:PORT_canary is not allowed
#> EACCES network access to 169.254.169.254:PORT_canary is not allowed
#> EACCES network access to 192.168.0.1:PORT_canary is not allowed
#> EACCES network access to 8.8.8.8:PORT_canary is not allowed
#> EACCES network access to [::1]:PORT_canary is not allowed
# %% Wildcards cover names below them and not the name itself
status("https://sub.wild.example.com:PORT_https/csv")
refusal("wild.example.com", PORT_https)
#> 200
#> EACCES network access to wild.example.com:PORT_https is not allowed
# %% Rules for requests
RULES = "https://rules.example.com:PORT_https"
status(f"{RULES}/hello")
status(f"{RULES}/other")
status(f"{RULES}/hello", method="DELETE")
status(f"{RULES}/request?kind=good", method="POST", data=b"{}", headers={"X-Team": "a"})
status(f"{RULES}/request?kind=bad", method="POST", data=b"{}", headers={"X-Team": "a"})
status(f"{RULES}/request?kind=good", method="POST", data=b"{}", headers={"X-Team": "b"})
#> 200
#> 403 network access to GET rules.example.com:PORT_https/other is not allowed by the rules of rules.example.com…
#> 403 network access to DELETE rules.example.com:PORT_https/hello is not allowed …
#> 200
#> 403 network access to POST rules.example.com:PORT_https/request is not allowed …
#> 403 network access to POST rules.example.com:PORT_https/request is not allowed …
# %% Redirects to other hosts are new connections
status("https://api.example.com:PORT_https/redirect?to=https://www.example.com:PORT_https/csv")
status("https://api.example.com:PORT_https/redirect?to=http://127.0.0.1:PORT_canary/")
status("https://api.example.com:PORT_https/redirect?to=http://169.254.169.254/latest/meta-data/")
status("https://api.example.com:PORT_https/redirect?to=https://elsewhere.example.org/")
#> 200
#> PermissionError …127.0.0.1:PORT_canary is not allowed
#> PermissionError …169.254.169.254:80 is not allowed
#> PermissionError …elsewhere.example.org:443 is not allowed
# %% Look-ups of names that are not allowed
for name in ("elsewhere.example.org", "metadata.google.internal"):
    try:
        print(socket.gethostbyname(name))
    except OSError as error:
        print(type(error).__name__, str(error).split(";")[0])
#> gaierror …network access to elsewhere.example.org is not allowed
#> gaierror …network access to metadata.google.internal is not allowed
# %% Nothing listens, and there are no datagrams
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try:
        socket.socket(socket.AF_INET, kind)
    except OSError as error:
        print(error.strerror.split("(")[0])
plain = socket.socket()
for use in (lambda: plain.bind(("127.0.0.1", 0)), lambda: plain.listen()):
    try:
        use()
    except OSError as error:
        print(error.strerror)
#> only TCP connections are supported in this sandbox 
#> only TCP connections are supported in this sandbox 
#> nothing can listen for connections in this sandbox
#> nothing can listen for connections in this sandbox
