//! The error of a command, as it is reported to the user.

use std::error::Error;
use std::fmt;

use crate::hint::Hint;

/// An error of a command: a fact, and perhaps a hint at a remedy.
#[derive(Debug, Clone)]
pub(crate) struct CommandError {
    message: String,
    hint: Option<String>,
}

impl CommandError {
    /// Creates an error without a hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// Adds a hint.
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds `context` in front of the message: `context: message`.
    pub(crate) fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Creates an error from an error without hints, including its causes.
    pub(crate) fn from_error(error: &dyn Error) -> Self {
        Self::new(error_chain(error))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(formatter, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl Error for CommandError {}

impl<E: Error + Hint> From<E> for CommandError {
    fn from(error: E) -> Self {
        let message = error_chain(&error);
        Self { hint: error.hint(), message }
    }
}

impl From<String> for CommandError {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for CommandError {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

/// Returns the error's message, followed by those of its causes that it does not contain, each on a line of its own.
fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!("\n  because {cause_text}"));
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_follows_the_error_on_a_line_of_its_own() {
        let error = CommandError::new("file is missing").context("--file").with_hint("create it");
        assert_eq!(error.to_string(), "--file: file is missing\nhint: create it");
    }

    #[test]
    fn causes_that_the_message_contains_are_not_repeated() {
        let cause = std::io::Error::other("disk full");
        let error = std::io::Error::other(format!("failed to write: {cause}"));
        assert_eq!(CommandError::from_error(&error).to_string(), "failed to write: disk full");
    }
}
