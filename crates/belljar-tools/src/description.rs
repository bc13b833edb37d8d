//! Texts about tools, for models: stubs, and the results of searches.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::catalogue::{Tool, Tools};
use crate::error::ToolFailure;
use crate::python_text::visible;

/// The imports that stubs refer to.
const IMPORTS: &str = "from typing import Any, Literal, Never, NotRequired, TypedDict\n";
/// The maximum number of tools in the result of a search, or in a description.
const MAX_FOUND: usize = 100;
/// The maximum length of the result of a search or of a description, in characters.
const MAX_TEXT: usize = 100_000;

/// The time that a server has for listing its tools.
const LIST_TIMEOUT: Duration = Duration::from_secs(20);

/// The level of detail of a search's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// The names.
    Names,
    /// The signatures, and the first lines of the descriptions.
    #[default]
    Summary,
    /// The stubs.
    Full,
}

impl FromStr for Detail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "names" => Ok(Self::Names),
            "summary" => Ok(Self::Summary),
            "full" => Ok(Self::Full),
            _ => Err(format!("the detail is \"names\", \"summary\" or \"full\", not {text:?}")),
        }
    }
}

impl Tools {
    /// Returns the Python stubs of all servers: one text, in which a comment introduces each server's module. A server
    /// that is down has a comment with the reason.
    pub async fn stubs(&self) -> String {
        let mut text = format!("{IMPORTS}\n");
        for server in &self.servers {
            // Writing to a String does not fail.
            let _ = writeln!(text, "# from tools import {}\n", server.name);
            let listing = tokio::time::timeout(LIST_TIMEOUT, self.listing(server)).await;
            match listing.unwrap_or_else(|_| Err(ToolFailure::Unavailable("it did not list its tools in time".into())))
            {
                Ok(listing) if listing.tools.is_empty() => text.push_str("# It has no tools.\n\n"),
                Ok(listing) => {
                    for tool in &listing.tools {
                        let _ = writeln!(text, "{}", tool.function().stub());
                    }
                }
                Err(failure) => {
                    let reason = visible(&failure.to_string()).replace('\n', "\n# ");
                    let _ = writeln!(text, "# It is unavailable: {reason}\n");
                }
            }
        }
        format!("{}\n", text.trim_end())
    }

    /// Returns the same as [`Tools::stubs`]. The servers are connected at the same time, and one that takes longer than
    /// [`LIST_TIMEOUT`] counts as unavailable.
    pub async fn stubs_at_once(self: &Arc<Self>) -> String {
        let listed = (0..self.servers.len()).map(|at| {
            let tools = self.clone();
            let list = async move {
                let Some(server) = tools.servers.get(at) else { return };
                // A failure is reported below.
                let _ = tools.listing(server).await;
            };
            tokio::spawn(tokio::time::timeout(LIST_TIMEOUT, list))
        });
        for task in listed.collect::<Vec<_>>() {
            let _ = task.await;
        }
        self.stubs().await
    }

    /// Returns the tools that match `query`, the most relevant first, as text. All tools match a query without words.
    pub async fn search_text(&self, query: &str, limit: usize, detail: Detail) -> String {
        let (found, failures) = self.search(query).await;
        let limit = limit.min(MAX_FOUND);
        let mut text = String::new();
        for tool in found.iter().take(limit) {
            let entry = match detail {
                Detail::Names => format!("{}\n", tool.path()),
                Detail::Summary => format!("{}.{}\n", tool.server, tool.function().summary()),
                Detail::Full => stub_of(tool),
            };
            if text.len() + entry.len() > MAX_TEXT {
                break;
            }
            text.push_str(&entry);
        }
        if found.is_empty() {
            text.push_str("No tool matches.\n");
        } else if found.len() > limit {
            let _ = writeln!(text, "# {} more tools match.", found.len() - limit);
        }
        for (server, failure) in failures {
            let reason = visible(&failure.to_string()).replace('\n', " ");
            let _ = writeln!(text, "# {server} is unavailable: {reason}");
        }
        text
    }

    /// Returns the stubs of tools by their names: `server.tool`.
    ///
    /// # Errors
    /// Returns an error if a tool does not exist or its server is down.
    pub async fn describe(&self, names: &[String]) -> Result<String, ToolFailure> {
        let mut text = String::new();
        for name in names.iter().take(MAX_FOUND) {
            let (server, tool) = name
                .split_once('.')
                .ok_or_else(|| ToolFailure::Failed("write the names of tools as \"server.tool\"".to_owned()))?;
            let server = self.server(server)?;
            let tool = self.listing(server).await?.find(&server.name, tool, false)?;
            text.push_str(&stub_of(&tool));
            if text.len() > MAX_TEXT {
                break;
            }
        }
        Ok(text)
    }
}

/// Returns the stub of a tool, after a comment with its server's module.
fn stub_of(tool: &Arc<Tool>) -> String {
    format!("# from tools import {}\n{}\n", tool.server, tool.function().stub())
}
