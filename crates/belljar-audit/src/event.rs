//! The events of the log. `docs/operations.md` has the same table, which a test compares with this one.

use serde::{Serialize, Serializer};

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $meaning:literal;)+) => {
        /// The event that a record reports.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Event {
            /// All events.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name in records.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns what the event means.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }
        }
    };
}

events! {
    /// The first record of a file.
    AuditOpen = "audit.open", "the first record of a file; `previous` is the hash that the chain goes on from";
    /// Records were not written.
    AuditLost = "audit.lost", "`count` records were not written, since the queue of records was full, or were not delivered to `name`";
    /// A file ends with a part of a line.
    AuditRecover = "audit.recover",
        "the file ended with a part of a line, as after a crash: it has `bytes` bytes, whose SHA-256 is `target`";
    /// The server starts.
    ServerStart = "server.start", "the server starts; `name` is its version, `arguments` are its process and transport";
    /// The server stops.
    ServerStop = "server.stop", "the server stops";
    /// A call of `run_python_code` begins.
    RunStart = "run.start", "a call of `run_python_code` begins";
    /// A call of `run_python_code` has ended.
    RunEnd = "run.end", "its code has ended";
    /// A cell begins.
    CellStart = "cell.start", "a cell of a session, a call of the code-execution protocol or a feed of Monty begins";
    /// A cell has ended.
    CellEnd = "cell.end", "it has ended";
    /// Code calls a tool of an MCP server.
    ToolStart = "tool.start", "code calls a tool of an MCP server, or reads a resource of one (`name`)";
    /// A tool's call has ended.
    ToolEnd = "tool.end", "that call has ended";
    /// A user is asked whether a call may be made.
    ApprovalAsk = "approval.ask", "a user is asked whether code may call a tool";
    /// A user has answered with yes.
    ApprovalGrant = "approval.grant", "the user agreed; `outcome` is what for: `once`, `run` or `session`, `by` is who has answered";
    /// A user has answered with no, or cannot be asked.
    ApprovalDeny = "approval.deny", "the user or an operator refused (`by`), or the user cannot be asked (`error`)";
    /// An operator has answered on the command line.
    ApprovalAnswer = "approval.answer", "`belljar runs` has answered a question of a run, or cancelled it (`outcome`)";
    /// An operator has used the admin API.
    OperatorAction = "operator.action",
        "an operator (`owner`) has used the console or the admin API to change something, to read a file or to list variables; `name` is the operation, `arguments` its request, `outcome` its status";
    /// A connection or an HTTP request of code.
    Connection = "connection", "a connection or an HTTP request of code has ended, or was refused";
    /// An installation of packages.
    Install = "install",
        "packages (`name`) were installed for code, also from the cache; `outcome` is `success`, or `failed` with the reason as `error`";
    /// A request or a call was refused because of a limit.
    Refusal = "refusal", "a request or a call was refused because of a limit of the server (`name`)";
    /// A request was refused because of its sender.
    AuthRefusal = "auth.refusal", "a request was refused because of its token, `Host`, `Origin` or MCP session (`name`)";
    /// A client has read a file of a session.
    FileRead = "file.read", "a client reads a file of a session";
    /// A client has written a file of a session.
    FileWrite = "file.write", "a client writes a file of a session";
    /// A session was created.
    SessionCreate = "session.create", "a session was created";
    /// A session was copied.
    SessionFork = "session.fork", "a session was copied; `target` is the new one";
    /// A session has ended.
    SessionEnd = "session.end", "a session has ended: `cleared` by its client, or `expired`";
    /// A session was put on the disk.
    SessionSleep = "session.sleep", "a session's interpreter was put on the disk";
    /// A session was restored from the disk, or could not be.
    SessionWake = "session.wake",
        "a session's interpreter was restored from the disk; `outcome` is `success`, or `failed` with the reason as `error`";
    /// A session has a new interpreter.
    SessionRestart = "session.restart", "a client has replaced a session's interpreter";
    /// The code of a session was interrupted.
    SessionInterrupt = "session.interrupt", "a client has interrupted a session's code";
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
