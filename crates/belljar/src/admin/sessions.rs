//! The list of sessions, over as many pages of the API as it takes.

use std::collections::HashSet;

use belljar_sessions::SessionActivity;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::client::Client;
use super::output::text;
use crate::command_error::CommandError;

/// The number of sessions that are requested at once.
const PAGE_SIZE: usize = 1000;

/// Which sessions are listed, and in which order.
#[derive(Debug, Args)]
pub(super) struct SessionFilter {
    /// Words that the handle, the owner or the code must contain.
    words: Vec<String>,
    /// States, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(SessionActivity::ALL.map(SessionActivity::name))
    )]
    state: Vec<String>,
    /// Only sessions that ask something.
    #[arg(long)]
    asking: bool,
    /// Order, from the greatest value down.
    #[arg(long, value_enum, default_value_t, value_name = "ORDER")]
    sort: Sort,
    /// Maximum number of sessions.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
}

/// An order of sessions.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Sort {
    #[default]
    LastUsed,
    Created,
    Cells,
    Memory,
}

impl Sort {
    /// Returns the name in the admin API.
    fn name(self) -> &'static str {
        match self {
            Self::LastUsed => "last_used",
            Self::Created => "created",
            Self::Cells => "cells",
            Self::Memory => "memory",
        }
    }
}

impl Client {
    /// Returns the list of the API with all sessions that a filter selects, up to its limit. Sessions that are used
    /// meanwhile change their places: one that moves over the end of a page is in the list once, or is missing.
    pub(super) fn list_sessions(&self, filter: &SessionFilter) -> Result<Value, CommandError> {
        let (words, states) = (filter.words.join(" "), filter.state.join(","));
        let asking = filter.asking.to_string();
        let (mut sessions, mut handles, mut offset) = (Vec::new(), HashSet::new(), 0);
        loop {
            let (begin, count) = (offset.to_string(), PAGE_SIZE.min(filter.limit - sessions.len()).to_string());
            let query = [
                ("q", words.as_str()),
                ("state", states.as_str()),
                ("asking", asking.as_str()),
                ("sort", filter.sort.name()),
                ("offset", begin.as_str()),
                ("limit", count.as_str()),
            ];
            let mut page = self.send("GET", "/sessions", &query, None)?;
            let Some(Value::Array(found)) = page.get_mut("sessions").map(Value::take) else {
                return Err(CommandError::new("the answer is not a list of sessions"));
            };
            offset += found.len();
            let is_last = found.is_empty() || page["matching"].as_u64() <= u64::try_from(offset).ok();
            sessions.extend(found.into_iter().filter(|session| handles.insert(text(&session["handle"]))));
            if is_last || sessions.len() >= filter.limit {
                page["sessions"] = sessions.into();
                return Ok(page);
            }
        }
    }
}
