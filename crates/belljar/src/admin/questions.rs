//! Open questions: their names, and the choice of the one that a command answers.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::str::FromStr;

use serde_json::Value;

use super::client::Client;
use super::output::{items, on_one_line, text};
use super::path;
use crate::command_error::CommandError;
use crate::run_commands::Scope;
use crate::untrusted_text::strip_control_chars;

/// The name of a question in its session: the number of the cell, and that of the question in the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QuestionName {
    cell: u64,
    number: u64,
}

impl FromStr for QuestionName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let parsed = name
            .split_once('.')
            .and_then(|(cell, number)| Some(Self { cell: cell.parse().ok()?, number: number.parse().ok()? }));
        parsed.ok_or("a question is named by its cell and its number, such as 3.1")
    }
}

impl fmt::Display for QuestionName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.cell, self.number)
    }
}

impl QuestionName {
    /// Returns the name of question `number` of a cell, which are numbers of the API.
    pub(super) fn new(cell: &Value, number: &Value) -> Self {
        Self { cell: cell.as_u64().unwrap_or_default(), number: number.as_u64().unwrap_or_default() }
    }
}

/// An open question of a session.
#[derive(Debug)]
pub(super) struct OpenQuestion {
    pub(super) name: QuestionName,
    message: String,
}

impl OpenQuestion {
    /// Returns the path of the answer in the session.
    pub(super) fn path(&self) -> String {
        format!("/cells/{}/questions/{}", self.name.cell, self.name.number)
    }

    /// Returns the question in one line, after its name.
    pub(super) fn line(&self) -> String {
        format!("{}: {}", self.name, on_one_line(&self.message)).trim_end().to_owned()
    }

    /// Shows the question on a terminal, and asks whether to approve it for these calls. Without a terminal, as in a
    /// script, it is approved.
    ///
    /// # Errors
    /// Fails if the answer is not yes.
    pub(super) fn confirm(&self, scope: Scope) -> Result<(), CommandError> {
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(());
        }
        let calls = match scope {
            Scope::Call => "this call",
            Scope::Run => "all calls of the tool in this run",
            Scope::Session => "all calls of the tool in this session",
        };
        eprintln!("{}", strip_control_chars(self.message.trim_end()));
        eprint!("approve {calls} (question {})? [y/N] ", self.name);
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(|error| format!("failed to read the terminal: {error}"))?;
        if matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(CommandError::new(format!("question {} stays open", self.name)))
    }
}

impl Client {
    /// Returns the open question of a kind, `approval` or `input`, that a session asks: the one of this name, or else
    /// the only one.
    ///
    /// # Errors
    /// Fails if the session is not named by a handle, if the question is not open, or if several are and none is named.
    pub(super) fn open_question(
        &self,
        session: &str,
        kind: &str,
        name: Option<QuestionName>,
    ) -> Result<OpenQuestion, CommandError> {
        // Checks the handle.
        path(session, "")?;
        choose(&self.send("GET", "/questions", &[("session", session)], None)?, session, kind, name)
    }
}

/// Chooses from the open questions of all sessions.
fn choose(open: &Value, session: &str, kind: &str, name: Option<QuestionName>) -> Result<OpenQuestion, CommandError> {
    let of_kind = items(&open["questions"]).filter(|asked| asked["session"] == session && asked["kind"] == kind);
    let named = of_kind.map(|asked| OpenQuestion {
        name: QuestionName::new(&asked["cell"], &asked["number"]),
        message: text(&asked["message"]),
    });
    let mut chosen: Vec<OpenQuestion> = named.filter(|asked| name.is_none_or(|name| asked.name == name)).collect();
    if chosen.len() > 1 {
        let names: Vec<String> = chosen.iter().map(|asked| asked.name.to_string()).collect();
        let error = format!("session {session} asks {} questions: {}", names.len(), names.join(", "));
        return Err(
            CommandError::new(error).with_hint("name one with --question; `belljar admin questions` shows them")
        );
    }
    chosen.pop().ok_or_else(|| {
        let which = name.map_or_else(String::new, |name| format!(": {name}"));
        CommandError::new(format!("session {session} asks no such question{which}"))
            .with_hint("`belljar admin questions` lists the open questions")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(session: &str, cell: u64, number: u64, kind: &str) -> Value {
        json!({ "session": session, "cell": cell, "number": number, "kind": kind, "message": "one\ntwo\x1b" })
    }

    #[test]
    fn one_of_several_questions_has_to_be_named() {
        let open = json!({ "questions": [
            question("a", 1, 1, "approval"),
            question("a", 1, 2, "approval"),
            question("a", 2, 1, "input"),
            question("b", 1, 1, "approval"),
        ] });
        let chosen =
            |session, kind, name: Option<&str>| choose(&open, session, kind, name.map(|name| name.parse().unwrap()));
        let refused = chosen("a", "approval", None).unwrap_err().to_string();
        let hint = "name one with --question; `belljar admin questions` shows them";
        assert_eq!(refused, format!("session a asks 2 questions: 1.1, 1.2\nhint: {hint}"));
        assert_eq!(chosen("a", "approval", Some("1.2")).unwrap().path(), "/cells/1/questions/2");
        assert_eq!(chosen("a", "input", None).unwrap().line(), "2.1: one two");
        assert_eq!(chosen("b", "approval", None).unwrap().name.to_string(), "1.1");
        for (session, kind, name) in [("a", "approval", "2.1"), ("b", "approval", "1.2"), ("c", "input", "1.1")] {
            let missing = chosen(session, kind, Some(name)).unwrap_err().to_string();
            assert!(missing.starts_with(&format!("session {session} asks no such question: {name}\n")), "{missing}");
        }
    }

    #[test]
    fn name_has_two_numbers() {
        assert_eq!("12.3".parse::<QuestionName>().unwrap().to_string(), "12.3");
        for name in ["", "1", "1.", ".1", "1.2.3", "-1.2", "a.b"] {
            assert!(name.parse::<QuestionName>().is_err(), "{name}");
        }
    }
}
