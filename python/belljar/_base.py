"""The parts that sandboxes and sessions for sync and async code share."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from . import _native
from ._arguments import check_functions
from ._errors import ArgumentTypeError, SandboxError, from_native
from ._jobs import native_call, wait
from ._options import Options, narrowing_policy, request
from ._run import Run

if TYPE_CHECKING:
    import asyncio

    from typing_extensions import Self

    from ._calls import Callbacks, Write
    from ._limits import Limits
    from ._mcp import ApprovalMode, Approve, McpServer
    from ._options import Network
    from ._tools import Tool


atexit.register(_native.shutdown)

SessionType = TypeVar("SessionType", bound="BaseSession")


class BaseSandbox(Generic[SessionType]):
    """The settings of a sandbox and its sessions."""

    _session_type: type[SessionType]
    _run_type: type[Run] = Run
    _is_noticed = False

    def __init__(
        self,
        packages: Iterable[str] = (),
        *,
        limits: Limits | None = None,
        tools: Iterable[Tool | McpServer | Callable[..., Any]] = (),
        servers: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = (),
        approve: Approve | Literal["pause"] | None = None,
        approval: ApprovalMode = "writes",
        allow_tools: Iterable[str] = (),
        deny_tools: Iterable[str] = (),
        install: bool = True,
        index_url: str | None = None,
        find_links: Iterable[str | os.PathLike[str]] = (),
        offline: bool = False,
        cache: str | os.PathLike[str] | None = None,
        network: Network | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a sandbox.

        Args:
            packages: Requirements of packages for all code, such as ``numpy`` or ``pandas>=2,<3``.
            limits: The limits of each piece of code.
            tools: Functions of this process that the code can call: ``await weather(city="Berlin")``; and MCP servers,
                whose tools the code imports: ``from tools import github``.
            servers: Configuration files of MCP servers, in the formats of Claude, Cursor, VS Code, Codex and
                pydantic-ai.
            approve: A function, sync or async, that receives an `ApprovalRequest` for each call of an MCP server's
                tool that needs approval, and returns ``"once"``, ``"run"``, ``"session"`` or ``"no"``. With ``"pause"``
                runs pause for these calls instead, and `Run.resume` answers. Without it they are denied.
            approval: The calls that need approval: ``none``, ``destructive``, ``writes`` or ``all``.
            allow_tools: The only tools of MCP servers that code may call: patterns such as ``github.get_*``.
            deny_tools: Tools of MCP servers that code may not call.
            install: If false, no packages are installed, neither those that the code imports nor with pip.
            index_url: A package index, instead of the default one.
            find_links: Directories of wheels.
            offline: If true, nothing is downloaded.
            cache: The directory of downloads and compiled packages, instead of the platform's.
            network: The hosts that code may connect to, such as ``["api.github.com", "*.example.com:8443"]``; or a
                policy, a dictionary with ``allow``, ``subnets``, ``resolve`` and ``ca``, a file of certificate
                authorities. Without it, code has no access to a network.
            secrets: Values that code can use without knowing them, in headers of requests over TLS to their hosts:
                ``{"GITHUB_TOKEN@api.github.com": token}``. The code finds a placeholder in the environment variable.
        """
        options = Options.local(
            packages,
            limits,
            tools,
            install,
            index_url,
            find_links,
            offline,
            cache,
            network,
            secrets,
            servers,
            approve,
            approval,
            allow_tools,
            deny_tools,
        )
        self._set_options(options)

    @classmethod
    def _with_options(cls, options: Options) -> Self:
        sandbox = cls.__new__(cls)
        sandbox._set_options(options)
        return sandbox

    def _set_options(self, options: Options) -> None:
        self._options = options
        self._sessions: list[SessionType] = []
        self._is_closed = False

    def session(self, *, network: Network | None = None) -> SessionType:
        """Creates a session: an IPython that keeps its variables and files. Its first call starts it.

        Args:
            network: Hosts or a policy that narrow the network of the sandbox for this session: its code may connect to
                what both allow. ``[]`` allows nothing.
        """
        self._check_open()
        policy = None if network is None else json.dumps(narrowing_policy(network))
        try:
            return self._add(self._options.runtime.session(policy))
        except _native.NativeError as error:
            raise from_native(error) from None

    def _load(self, dump: bytes) -> SessionType | Run:
        self._check_open()
        if not isinstance(dump, (bytes, bytearray, memoryview)):
            raise ArgumentTypeError(f"dump: bytes are needed, not {type(dump).__name__}")
        try:
            native = self._options.runtime.load(bytes(dump))
        except _native.NativeError as error:
            raise from_native(error) from None
        if not isinstance(native, _native.PausedCode):
            return self._add(native)
        from . import _paused

        return _paused.load(self, native, native.describe())

    def _callbacks(
        self, loop: asyncio.AbstractEventLoop | None, on_stdout: Write | None, on_stderr: Write | None
    ) -> Callbacks | None:
        check_functions(on_stdout=on_stdout, on_stderr=on_stderr)
        options = self._options
        if not options.tools and options.approve is None and on_stdout is None and on_stderr is None:
            return None
        from ._calls import Callbacks

        return Callbacks(options.tools, loop, on_stdout, on_stderr, options.max_calls, options.approve)

    def _function_stubs(self) -> str:
        return "\n\n".join(tool.stub() for tool in self._options.tools.values())

    def _add(self, native: _native.Session) -> SessionType:
        session = self._session_type(self, native)
        self._sessions.append(session)
        return session

    def _take_sessions(self) -> list[SessionType]:
        """Closes the sandbox for further calls, and returns the sessions that have to be closed."""
        self._is_closed = True
        sessions, self._sessions = self._sessions, []
        return sessions

    def _warn(self, notice: str | None) -> None:
        """Warns that the files of the package do not fit the machine, for the caller of the method that calls this."""
        if notice is not None and not self._is_noticed:
            import warnings

            self._is_noticed = True
            warnings.warn(notice, RuntimeWarning, stacklevel=3)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SandboxError("the sandbox is closed")


class BaseSession:
    """A session of a sandbox."""

    def __init__(self, sandbox: BaseSandbox[Any], native: _native.Session) -> None:
        self._sandbox: Any = sandbox
        self._native = native
        self._modules: set[str] = set()

    def _requests(
        self, code: str, variables: Mapping[str, Any] | None, timeout: float | None
    ) -> tuple[str, list[bytes], list[tuple[str, str]]]:
        """Returns the request of a cell, its buffers, and modules with the requests of the cells that import them.

        The variables need these modules before the cell runs, which installs what the cell itself imports.
        """
        text, buffers, needed = request(code, variables, timeout, (), self._sandbox._options)
        if not needed:
            return text, buffers, []
        modules = sorted(needed - self._modules)
        return text, buffers, [(name, request(f"import {name} as _", None, None, ())[0]) for name in modules]

    @property
    def _can_pause(self) -> bool:
        """False for a session on a server, whose code has no functions of this process to wait for."""
        return self._sandbox._options.remote_runtime is None

    def _paused_run(self, native: _native.PausedCode | None) -> Run | None:
        if native is None:
            return None
        from . import _paused

        return _paused.load(self._sandbox, native, native.describe())

    def _close(self) -> None:
        """Ends the session, sync or async, and waits for that."""
        self._remove()
        wait(native_call(self._native.close, None))

    def _remove(self) -> None:
        if self in self._sandbox._sessions:
            self._sandbox._sessions.remove(self)
