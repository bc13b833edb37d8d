"""The arguments with which sandboxes are created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._base import BaseSandbox
from ._cells import texts_by_name
from ._errors import InvalidArgumentException, UnsupportedException

if TYPE_CHECKING:
    from .._options import Network

Box = TypeVar("Box", bound="BaseSandbox[Any]")

TIMEOUT = 300.0
"""The seconds after which a sandbox ends by default."""
TEMPLATE = "code-interpreter-v1"
_TEMPLATES = (TEMPLATE, "base", "")
_ALL_TRAFFIC = ("0.0.0.0/0", "::/0")
_IGNORED_NETWORK = ("allow_out", "deny_out", "allow_public_traffic")
# The connection to E2B's servers has options that have no effect here, and some that name other servers.
_IGNORED = (
    "api_key",
    "validate_api_key",
    "headers",
    "api_headers",
    "request_timeout",
    "retries",
    "http_version",
    "debug",
    "logger",
)
_ELSEWHERE = ("domain", "api_url", "sandbox_url", "proxy")


@dataclass
class Settings(Generic[Box]):
    """The arguments, checked."""

    box: Box
    """Belljar's sandbox, of which the session is."""
    narrowed: Network | None
    """The network of the session, None for that of the box."""
    template: str
    """The template, or the name or the ID of a snapshot."""
    is_snapshot: bool
    has_box: bool
    """True if the caller has passed the box."""
    timeout: float
    metadata: dict[str, str]
    envs: dict[str, str]
    pauses: bool
    """True if the sandbox is paused at its timeout."""
    auto_resume: bool
    allow_internet_access: bool | None
    network: dict[str, Any] | None

    @property
    def lifecycle(self) -> dict[str, Any]:
        """The action at the timeout."""
        return {"on_timeout": "pause" if self.pauses else "kill", "auto_resume": self.auto_resume}


def check_connection(options: Mapping[str, Any]) -> None:
    """Refuses options of the connection to E2B that would have another effect than the caller expects."""
    for name, value in options.items():
        if name in _ELSEWHERE:
            if value is not None:
                raise UnsupportedException(
                    f"{name}: the sandbox runs in this process; `box=belljar.connect(url, token=…)` is one on a server"
                )
        elif name not in _IGNORED:
            raise InvalidArgumentException(f"{name}: there is no such argument")


def settings(
    kind: type[Box],
    *,
    timeout: float | None,
    box: Box | None,
    template: str | None = None,
    metadata: Mapping[str, str] | None = None,
    envs: Mapping[str, str] | None = None,
    allow_internet_access: bool | None = None,
    network: Mapping[str, Any] | None = None,
    lifecycle: Mapping[str, Any] | None = None,
    refused: Mapping[str, object] = MappingProxyType({}),
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Settings[Box]:
    """Returns the arguments of `create`, checked.

    Args:
        refused: Arguments that mean nothing here.
        options: Those of the connection to E2B.
    """
    check_connection(options)
    for name, value in refused.items():
        if value:
            raise UnsupportedException(
                f"{name}: not supported; `box=` takes a {kind.__name__} of belljar with its options"
            )
    if template is not None and not isinstance(template, str):
        raise InvalidArgumentException(f"template: a text is needed, not {type(template).__name__}")
    policy = _policy(allow_internet_access, network)
    pauses, auto_resume = _lifecycle(lifecycle)
    has_box = box is not None
    if box is None:
        box = kind(network=policy) if policy else kind()
        narrowed = None
    else:
        check_box(kind, box)
        # A box without a network has none to narrow.
        narrowed = None if allow_internet_access and network is None else policy
    if pauses and box._options.remote_runtime is not None:
        raise UnsupportedException("lifecycle: sandboxes on a server cannot be paused")
    return Settings(
        box=box,
        narrowed=narrowed,
        template=template or TEMPLATE,
        is_snapshot=(template or "") not in _TEMPLATES,
        has_box=has_box,
        timeout=lifetime(timeout),
        metadata=texts_by_name(metadata, "metadata"),
        envs=texts_by_name(envs, "envs"),
        pauses=pauses,
        auto_resume=auto_resume,
        allow_internet_access=allow_internet_access,
        network=dict(network) if network else None,
    )


def check_box(kind: type[Box], box: object) -> None:
    """Refuses boxes in which code could pause, or that are not of the right kind."""
    if not isinstance(box, kind):
        function = "connect_async" if kind.__name__ == "AsyncSandbox" else "connect"
        raise InvalidArgumentException(
            f"box: a belljar.{kind.__name__}, or the result of belljar.{function}, is needed, not {box!r}"
        )
    options = box._options
    if options.pauses_for_approval or any(tool.deferred for tool in options.tools.values()):
        raise UnsupportedException("box: deferred tools and approve='pause' are not supported, since runs would pause")


def lifetime(timeout: float | None) -> float:
    """Returns the seconds after which a sandbox ends."""
    if timeout is None:
        return TIMEOUT
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < 1e9:
        raise InvalidArgumentException(f"timeout: {timeout!r} is not a number of seconds")
    return float(timeout)


def _lifecycle(lifecycle: Mapping[str, Any] | None) -> tuple[bool, bool]:
    if lifecycle is None:
        return False, False
    on_timeout = lifecycle.get("on_timeout", "kill")
    if isinstance(on_timeout, Mapping):
        if on_timeout.get("mode") == "filesystem" or on_timeout.get("keep_memory") is False:
            raise UnsupportedException("lifecycle: pauses at the timeout include the memory")
        on_timeout = on_timeout.get("action")
    auto_resume = bool(lifecycle.get("auto_resume"))
    if on_timeout not in ("kill", "pause"):
        raise InvalidArgumentException(f"lifecycle: on_timeout is 'kill' or 'pause', not {on_timeout!r}")
    if auto_resume and on_timeout == "kill":
        raise InvalidArgumentException("lifecycle: auto_resume needs on_timeout='pause'")
    return on_timeout == "pause", auto_resume


def _policy(allowed: bool | None, network: Mapping[str, Any] | None) -> Network | None:
    """Returns Belljar's policy for E2B's, None if none is given. Belljar allows nothing that is not named."""
    if allowed is False:
        return []
    if network is None:
        return ["*"] if allowed else None
    for name, value in network.items():
        if name not in _IGNORED_NETWORK and value:
            raise UnsupportedException(f"network[{name!r}]: not supported; `belljar.Sandbox(network=…)` has policies")
    allow, deny = _hosts(network, "allow_out"), _hosts(network, "deny_out")
    denies_all = any(each in _ALL_TRAFFIC for each in deny)
    if allow is None or not allow:
        allow = [] if denies_all else ["*"]
    hosts = ["*" if each in _ALL_TRAFFIC else _pattern(each) for each in allow]
    subnets = [each for each in deny if each not in _ALL_TRAFFIC]
    for each in subnets:
        if not _is_address(each):
            raise UnsupportedException(f"network['deny_out']: {each!r} is not a range of addresses")
    return {"allow": hosts, "subnets": {"deny": subnets}} if subnets else hosts


def _hosts(network: Mapping[str, Any], name: str) -> list[str]:
    hosts = network.get(name)
    if hosts is None:
        return []
    if callable(hosts):
        raise UnsupportedException(f"network[{name!r}]: a list is needed, functions are not supported")
    if isinstance(hosts, str) or not all(isinstance(each, str) for each in hosts):
        raise InvalidArgumentException(f"network[{name!r}]: a list of texts is needed")
    return list(hosts)


def _is_address(host: str) -> bool:
    try:
        ip_network(host, strict=False)
    except ValueError:
        return False
    return True


def _pattern(host: str) -> str:
    """Returns Belljar's pattern of a host. Of addresses, all ports are allowed."""
    if not _is_address(host):
        return host
    return f"[{host}]:*" if ":" in host else f"{host}:*"
