//! The definitions of the session tools: their names, descriptions and schemas.
//!
//! They do not declare an output schema: a result with images has no structured content, since many clients would
//! show the model nothing else.

use std::borrow::Cow;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use crate::arguments::{self, AnswerQuestion, ExecuteCode, ListRuns, ResumeRun, SessionOnly, UploadFile};

pub(crate) const EXECUTE: &str = "execute_code";
pub(super) const LIST: &str = "list_session_files";
pub(super) const CLEAR: &str = "clear_session";
pub(super) const UPLOAD: &str = "upload_file";
pub(crate) const INTERRUPT: &str = "interrupt_session";
pub(super) const RESTART: &str = "restart_session";
pub(super) const FORK: &str = "fork_session";
pub(super) const LIST_RUNS: &str = "list_runs";
pub(super) const RESUME_RUN: &str = "resume_run";
/// For panels, not for models.
pub(crate) const ANSWER_QUESTION: &str = "answer_question";

/// Returns the definitions of the tools for runs that outlast their clients.
pub(super) fn run_tools() -> [Tool; 2] {
    [
        tool(
            LIST_RUNS,
            "List runs",
            "List the cells that run, that wait for an answer, or whose results were not fetched because the client left.",
            ToolEffect::ReadOnly,
            arguments::schema::<ListRuns>(),
        ),
        tool(
            RESUME_RUN,
            "Resume a run",
            "Wait for the result of a run of list_runs, as execute_code would have returned it. The user is asked again \
             what it waits for. A run cannot be started a second time by this.",
            ToolEffect::Write,
            arguments::schema::<ResumeRun>(),
        ),
    ]
}

/// Returns the definition of the tool by which panels pass a user's decision on.
pub(super) fn panel_tool() -> Tool {
    tool(
        ANSWER_QUESTION,
        "Answer a question",
        "Pass the user's decision about a call of a tool on to the run that waits for it. For panels: it takes the \
         question's token.",
        ToolEffect::Write,
        arguments::schema::<AnswerQuestion>(),
    )
}

/// Returns the definitions of the tools, with this description of `execute_code`. `have_folders` is set if files stay
/// when a session ends.
pub(super) fn all(execute_description: String, can_fork: bool, have_folders: bool) -> Vec<Tool> {
    let clear_description = if have_folders {
        "End a session: its variables are deleted. Its files stay in its folder on the user's machine."
    } else {
        "End a session: its variables and all its files are deleted."
    };
    let mut tools = vec![
        tool(
            EXECUTE,
            "Run code in a session",
            execute_description,
            ToolEffect::Write,
            arguments::schema::<ExecuteCode>(),
        ),
        tool(
            LIST,
            "List a session's files",
            "List the files of a session.",
            ToolEffect::ReadOnly,
            arguments::schema::<SessionOnly>(),
        ),
        tool(CLEAR, "Clear a session", clear_description, ToolEffect::Destructive, arguments::schema::<SessionOnly>()),
        tool(
            UPLOAD,
            "Upload a file",
            "Write a file into a session's working directory, as text or as base64.",
            ToolEffect::Write,
            arguments::schema::<UploadFile>(),
        ),
        tool(
            INTERRUPT,
            "Interrupt a session",
            "Raise KeyboardInterrupt in a session's running code. Its variables are kept.",
            ToolEffect::Write,
            arguments::schema::<SessionOnly>(),
        ),
        tool(
            RESTART,
            "Restart a session",
            "Give a session a fresh interpreter. Its variables are lost, its files are kept.",
            ToolEffect::Destructive,
            arguments::schema::<SessionOnly>(),
        ),
    ];
    if can_fork {
        tools.push(tool(
            FORK,
            "Fork a session",
            "Create a new session with the same variables and files. Later changes in one session do not affect the other.",
            ToolEffect::Write,
            arguments::schema::<SessionOnly>(),
        ));
    }
    tools
}

/// The effect of a call, in the terms of MCP's annotations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolEffect {
    ReadOnly,
    Write,
    Destructive,
}

fn tool(
    name: &'static str,
    title: &str,
    description: impl Into<Cow<'static, str>>,
    effect: ToolEffect,
    schema: Arc<JsonObject>,
) -> Tool {
    let mut tool = Tool::new(name, description, schema);
    tool.title = Some(title.into());
    tool.annotations = Some(ToolAnnotations::from_raw(
        Some(title.into()),
        Some(effect == ToolEffect::ReadOnly),
        Some(effect == ToolEffect::Destructive),
        Some(effect != ToolEffect::Write),
        Some(false),
    ));
    tool
}
