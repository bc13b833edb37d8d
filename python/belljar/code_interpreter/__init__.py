"""The interface of E2B's code interpreter over Belljar: changing the import is enough.

>>> from belljar.code_interpreter import Sandbox
>>> with Sandbox.create() as sandbox:
...     sandbox.run_code("x = 6\\nx * 7").text
'42'
"""

from ._async_sandbox import AsyncSandbox
from ._background import AsyncCommandHandle, AsyncCommandInputHandle, CommandHandle
from ._commands import AsyncCommands, Commands
from ._errors import (
    AuthenticationException,
    FileNotFoundException,
    GuestUnresponsiveException,
    InvalidArgumentException,
    NotEnoughSpaceException,
    NotFoundException,
    RateLimitException,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    SandboxUnreachableException,
    ServiceBusyException,
    TemplateException,
    TimeoutException,
    UnsupportedException,
)
from ._files import AsyncFileStreamReader, FileStreamReader, WriteData, WriteEntry
from ._filesystem import AsyncFilesystem, Filesystem
from ._info import (
    AsyncPaginator,
    CommandExitException,
    CommandResult,
    EntryInfo,
    FileType,
    Paginator,
    ProcessInfo,
    SandboxInfo,
    SandboxQuery,
    SandboxState,
    SnapshotInfo,
    WriteInfo,
)
from ._models import Context, Execution, ExecutionError, Logs, MIMEType, OutputMessage, Result
from ._sandbox import Sandbox

ALL_TRAFFIC = "0.0.0.0/0"
"""All addresses, in ``network``."""

SandboxPaginator = Paginator[SandboxInfo]
AsyncSandboxPaginator = AsyncPaginator[SandboxInfo]
SnapshotPaginator = Paginator[SnapshotInfo]
AsyncSnapshotPaginator = AsyncPaginator[SnapshotInfo]

__all__ = [
    "ALL_TRAFFIC",
    "AsyncCommandHandle",
    "AsyncCommandInputHandle",
    "AsyncCommands",
    "AsyncFileStreamReader",
    "AsyncFilesystem",
    "AsyncPaginator",
    "AsyncSandbox",
    "AsyncSandboxPaginator",
    "AsyncSnapshotPaginator",
    "AuthenticationException",
    "CommandExitException",
    "CommandHandle",
    "CommandResult",
    "Commands",
    "Context",
    "EntryInfo",
    "Execution",
    "ExecutionError",
    "FileNotFoundException",
    "FileStreamReader",
    "FileType",
    "Filesystem",
    "GuestUnresponsiveException",
    "InvalidArgumentException",
    "Logs",
    "MIMEType",
    "NotEnoughSpaceException",
    "NotFoundException",
    "OutputMessage",
    "Paginator",
    "ProcessInfo",
    "RateLimitException",
    "Result",
    "Sandbox",
    "SandboxException",
    "SandboxInfo",
    "SandboxNotFoundException",
    "SandboxNotRunningException",
    "SandboxPaginator",
    "SandboxQuery",
    "SandboxState",
    "SandboxUnreachableException",
    "ServiceBusyException",
    "SnapshotInfo",
    "SnapshotPaginator",
    "TemplateException",
    "TimeoutException",
    "UnsupportedException",
    "WriteData",
    "WriteEntry",
    "WriteInfo",
]
