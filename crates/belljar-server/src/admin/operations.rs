//! The table of operations, from which the routes and the OpenAPI document are made.

use axum::routing::{MethodRouter, delete, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::cells::{self, Answer, CellList, Questions, RunCell, Submitted};
use super::events::{self, EventView};
use super::files::{self, Files};
use super::frames::{self, Frame};
use super::sessions::{self, Created, Done, ServerView, SessionList};
use super::variables::{self, Variables};
use super::views::{CellView, SessionView};
use super::{Admin, openapi};

/// An operation of the API.
pub(super) struct Operation {
    /// The method, in lower case.
    pub(super) method: &'static str,
    /// The path below [`API_PATH`](super::API_PATH).
    pub(super) path: &'static str,
    /// The identifier in the document.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// The parameters of the query: name, type, meaning.
    pub(super) query: &'static [(&'static str, &'static str, &'static str)],
    /// The schema of the body; `None` for requests without a body.
    pub(super) body: Option<SchemaOf>,
    pub(super) answer: AnswerKind,
    /// True if the session runs code for it, and it changes nothing.
    runs_code: bool,
    pub(super) handler: fn() -> MethodRouter<Admin>,
}

impl Operation {
    /// Returns whether the audit log has each use: of operations that change something, of those that show files, and
    /// of those for which the session runs code. The console uses the latter when its tab is opened and after a cell.
    pub(super) fn is_recorded(&self) -> bool {
        self.method != "get" || matches!(self.answer, AnswerKind::Bytes) || self.runs_code
    }
}

/// Creates the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The answer to an operation that succeeds.
pub(super) enum AnswerKind {
    /// A JSON object, with this status.
    Json(u16, SchemaOf),
    /// Nothing.
    Empty,
    /// Nothing, with status 202 if the operation goes on: for this reason.
    EmptyOrAccepted(&'static str),
    /// Server-sent events with this data.
    Events(SchemaOf),
    /// A file.
    Bytes,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

fn json<T: JsonSchema>() -> AnswerKind {
    AnswerKind::Json(200, schema::<T>)
}

const LIST: &[(&str, &str, &str)] = &[
    ("q", "string", "Words that the handle, the owner or the code of the last cell must all contain"),
    ("state", "string", "States, separated by commas: running, waiting, idle, asleep, away, ended"),
    ("asking", "boolean", "Only sessions with open questions"),
    ("sort", "string", "last_used, created, cells or memory; the first session has the greatest value"),
    ("offset", "integer", "The number of matching sessions before the page"),
    ("limit", "integer", "The size of the page, at most 1000"),
];
const CELLS: &[(&str, &str, &str)] = &[
    ("before", "integer", "Only cells with smaller numbers"),
    ("limit", "integer", "The size of the page, at most 100"),
];
const EVENTS: &[(&str, &str, &str)] =
    &[("session", "string", "The handle of a session whose output the stream has, too")];
const QUESTIONS: &[(&str, &str, &str)] = &[("session", "string", "Only questions of the session with this handle")];
const FILE: &[(&str, &str, &str)] = &[("path", "string", "The path in the session's directory")];

/// Returns all operations.
#[rustfmt::skip]
pub(super) fn all() -> Vec<Operation> {
    let op = |method, path, id, summary, answer, handler| Operation {
        method, path, id, summary, query: &[], body: None, answer, runs_code: false, handler,
    };
    let created = || AnswerKind::Json(201, schema::<Created>);
    vec![
        op("get", "/openapi.json", "openapi", "Describe this API", AnswerKind::Json(200, openapi::schema_of_any), || get(openapi::answer)),
        op("get", "/server", "server", "Return the settings of the server", json::<ServerView>(), || get(sessions::server)),
        Operation { query: LIST, ..op("get", "/sessions", "listSessions", "List, filter and page sessions", json::<SessionList>(), || get(sessions::list)) },
        op("post", "/sessions", "createSession", "Create a session for operators", created(), || post(sessions::create)),
        op("get", "/sessions/{handle}", "getSession", "Return a session", json::<SessionView>(), || get(sessions::show)),
        op("delete", "/sessions/{handle}", "endSession", "Interrupt what a session runs, and end it", AnswerKind::EmptyOrAccepted("The code does not stop; the session ends with it"), || delete(sessions::end)),
        op("post", "/sessions/{handle}/interrupt", "interruptSession", "Interrupt the code that runs; the variables stay", json::<Done>(), || post(sessions::interrupt)),
        op("post", "/sessions/{handle}/restart", "restartSession", "Replace the interpreter by a new one; the files stay", AnswerKind::Empty, || post(sessions::restart)),
        op("post", "/sessions/{handle}/fork", "forkSession", "Create a session with the same variables, files and owner", created(), || post(sessions::fork)),
        op("post", "/sessions/{handle}/sleep", "sleepSession", "Put a session on the disk until it is used", json::<Done>(), || post(sessions::sleep)),
        Operation { query: CELLS, ..op("get", "/sessions/{handle}/cells", "listCells", "Return the last cells of a session", json::<CellList>(), || get(cells::list)) },
        Operation { body: Some(schema::<RunCell>), ..op("post", "/sessions/{handle}/cells", "runCell", "Submit a cell; it runs after the calls before it", AnswerKind::Json(202, schema::<Submitted>), || post(cells::run)) },
        op("get", "/sessions/{handle}/cells/{number}", "getCell", "Return a cell as it is now", json::<CellView>(), || get(cells::show)),
        op("post", "/sessions/{handle}/cells/{number}/outputs/{output}/frame", "createFrame", "Return an address at which the HTML of an output is shown once, without scripts", json::<Frame>(), || post(frames::create)),
        Operation { body: Some(schema::<Answer>), ..op("post", "/sessions/{handle}/cells/{number}/questions/{question}", "answerQuestion", "Approve or deny a call of a tool, or answer input()", AnswerKind::Empty, || post(cells::answer)) },
        op("get", "/sessions/{handle}/files", "listFiles", "List the files of a session that runs no cell, which wakes it", json::<Files>(), || get(files::list)),
        Operation { query: FILE, ..op("get", "/sessions/{handle}/files/content", "readFile", "Download a file", AnswerKind::Bytes, || get(files::read)) },
        Operation { runs_code: true, ..op("get", "/sessions/{handle}/variables", "listVariables", "List the variables of a session that is awake and idle", json::<Variables>(), || get(variables::list)) },
        op("get", "/sessions/{handle}/events", "followSession", "Follow a session, with the output of its cells", AnswerKind::Events(schema::<EventView>), || get(events::session_events)),
        Operation { query: QUESTIONS, ..op("get", "/questions", "listQuestions", "Return the open questions of all sessions, or of one", json::<Questions>(), || get(cells::questions)) },
        Operation { query: EVENTS, ..op("get", "/events", "follow", "Follow all sessions, without output or with that of one", AnswerKind::Events(schema::<EventView>), || get(events::all_events)) },
    ]
}
