//! The questions of a paused run for panels, in the `_meta` of a result.

use serde::Serialize;

/// The content of a panel for a run that waits for its user.
#[derive(Debug, Serialize)]
pub(crate) struct PanelQuestions {
    state: &'static str,
    run_id: String,
    questions: Vec<PanelQuestion>,
    /// Text for the user if the client does not let panels call tools.
    hint: String,
}

/// A question about a call of a tool.
#[derive(Debug, Serialize)]
pub(crate) struct PanelQuestion {
    /// The number, which is unique in the run.
    pub(crate) number: u64,
    /// The text.
    pub(crate) message: String,
    /// A secret that an answer needs.
    pub(crate) token: String,
}

impl PanelQuestions {
    /// Creates the content for the open questions of a run.
    pub(crate) fn new(run: &str, questions: Vec<PanelQuestion>, hint: String) -> Self {
        Self { state: "waiting", run_id: run.to_owned(), questions, hint }
    }
}
