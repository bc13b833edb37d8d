//! A toolset of a combination: whether it is available, and how it comes back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::error::McpError;
use crate::run_context::RunContext;
use crate::toolset::{Toolset, ToolsetGuard};

/// The delay before the second attempt to reach an unavailable toolset again, which doubles with every attempt, and its
/// maximum. The first attempt is made with the next list.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The handler of optional toolsets that become unavailable.
pub(super) type UnavailableHandler = Arc<dyn Fn(&str, &McpError) + Send + Sync>;

/// The status of one toolset of a [`CombinedToolset`](crate::CombinedToolset).
///
/// ```
/// use belljar_mcp_client::{CombinedToolset, McpServerStdio, ToolsetState};
///
/// let all = CombinedToolset::new().with_optional(McpServerStdio::new("server").id("files").build());
/// let [status] = all.statuses().try_into().unwrap();
/// assert_eq!((status.label.as_str(), status.is_optional, status.state), ("files", true, ToolsetState::Unknown));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolsetStatus {
    /// The label of the toolset.
    pub label: String,
    /// True if the others work without it.
    pub is_optional: bool,
    /// The outcome of the last attempt to use it.
    pub state: ToolsetState,
}

/// The availability of a toolset.
///
/// ```
/// # use belljar_mcp_client::ToolsetState;
/// let state = ToolsetState::Unavailable { error: "connection refused".into(), failures: 2 };
/// assert_eq!(serde_json::to_value(&state).unwrap()["unavailable"]["failures"], 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolsetState {
    /// It was not used yet.
    #[default]
    Unknown,
    /// It could be entered or listed.
    Available,
    /// It could not be entered or listed.
    Unavailable {
        /// The last error.
        error: String,
        /// The number of failed attempts in a row.
        failures: u32,
    },
}

/// The guards that one guard of a combination holds, by the position of their toolset.
#[derive(Default)]
pub(super) struct Hold(Mutex<Vec<Option<ToolsetGuard>>>);

impl Hold {
    pub(super) fn new(guards: Vec<Option<ToolsetGuard>>) -> Self {
        Self(Mutex::new(guards))
    }

    pub(super) fn take_all(&self) -> Vec<ToolsetGuard> {
        std::mem::take(&mut *self.0.lock()).into_iter().flatten().collect()
    }

    fn take(&self, position: usize) -> Option<ToolsetGuard> {
        self.0.lock().get_mut(position)?.take()
    }

    /// Stores a guard, unless the combination was closed meanwhile.
    fn put(&self, position: usize, guard: ToolsetGuard) {
        if let Some(slot) = self.0.lock().get_mut(position) {
            *slot = Some(guard);
        }
    }
}

/// The holds of all guards of a combination.
pub(super) type Holds = Arc<Mutex<Vec<Weak<Hold>>>>;

/// A toolset of a combination.
pub(super) struct Member {
    pub(super) toolset: Arc<dyn Toolset>,
    pub(super) is_optional: bool,
    /// Shared with the same toolset of other runs: it is the server that is unavailable.
    health: Arc<Mutex<Health>>,
}

#[derive(Default)]
struct Health {
    state: ToolsetState,
    /// The time from which an unavailable toolset may be tried again.
    next_attempt: Option<Instant>,
    is_recovering: bool,
}

impl Member {
    pub(super) fn new(toolset: Arc<dyn Toolset>, is_optional: bool) -> Self {
        Self { toolset, is_optional, health: Arc::default() }
    }

    /// Returns the member with its toolset for a run.
    pub(super) fn with_toolset(&self, toolset: Arc<dyn Toolset>) -> Self {
        Self { toolset, is_optional: self.is_optional, health: self.health.clone() }
    }

    pub(super) fn status(&self) -> ToolsetStatus {
        let state = self.health.lock().state.clone();
        ToolsetStatus { label: self.toolset.label(), is_optional: self.is_optional, state }
    }

    pub(super) fn is_unavailable(&self) -> bool {
        matches!(self.health.lock().state, ToolsetState::Unavailable { .. })
    }

    /// Awaits an attempt to use the toolset and records the outcome. The failure of an optional toolset is `None`.
    ///
    /// # Errors
    ///
    /// The failure of a toolset that is not optional.
    pub(super) async fn attempt<T>(
        &self,
        attempt: impl Future<Output = Result<T, McpError>>,
        on_unavailable: Option<&UnavailableHandler>,
    ) -> Result<Option<T>, McpError> {
        match attempt.await {
            Ok(done) => {
                self.succeeded();
                Ok(Some(done))
            }
            Err(error) => {
                self.failed(&error.to_string());
                if !self.is_optional {
                    return Err(error);
                }
                tracing::warn!(toolset = self.toolset.label(), %error, "an optional toolset is unavailable");
                if let Some(handler) = on_unavailable {
                    handler(&self.toolset.label(), &error);
                }
                Ok(None)
            }
        }
    }

    /// Awaits what an optional toolset may lack; its failure will show when it is listed.
    pub(super) async fn unless_optional<T>(
        &self,
        attempt: impl Future<Output = Result<Option<T>, McpError>>,
    ) -> Result<Option<T>, McpError> {
        match attempt.await {
            Err(error) if self.is_optional => {
                tracing::debug!(toolset = self.toolset.label(), %error, "an optional toolset is unavailable");
                Ok(None)
            }
            done => done,
        }
    }

    fn succeeded(&self) {
        let mut health = self.health.lock();
        health.state = ToolsetState::Available;
        health.next_attempt = None;
    }

    /// Records a failure: the next list is without the toolset and tries to reach it again.
    pub(super) fn failed(&self, error: &str) {
        let mut health = self.health.lock();
        let failures = match health.state {
            ToolsetState::Unavailable { failures, .. } => failures.saturating_add(1),
            _ => 1,
        };
        health.state = ToolsetState::Unavailable { error: error.to_owned(), failures };
        health.next_attempt = delay_after(failures).map(|delay| Instant::now() + delay);
    }

    /// Starts an attempt to use the unavailable toolset again, in the background, if it is time for one. A guard on its
    /// old connection is replaced, so that a child process that ended is started again.
    pub(super) fn recover(self: &Arc<Self>, position: usize, holds: &Holds, run: &RunContext) {
        {
            let mut health = self.health.lock();
            if health.is_recovering || health.next_attempt.is_some_and(|next| Instant::now() < next) {
                return;
            }
            health.is_recovering = true;
        }
        let (member, holds, run) = (self.clone(), holds.clone(), run.clone());
        tokio::spawn(async move {
            // Resets the mark even if the attempt panics.
            let _recovering = Recovering(member.clone());
            match member.reenter(position, &holds, &run).await {
                Ok(()) => {
                    tracing::info!(toolset = member.toolset.label(), "a toolset is available again");
                    member.succeeded();
                }
                Err(error) => member.failed(&error.to_string()),
            }
        });
    }

    async fn reenter(&self, position: usize, holds: &Holds, run: &RunContext) -> Result<(), McpError> {
        let live: Vec<Arc<Hold>> = holds.lock().iter().filter_map(Weak::upgrade).collect();
        for hold in &live {
            if let Some(old) = hold.take(position) {
                let _ = old.close().await;
            }
        }
        for hold in &live {
            hold.put(position, self.toolset.enter().await?);
        }
        self.toolset.tools(run).await.map(drop)
    }
}

/// Returns the delay before the next attempt after this number of failures in a row; `None` allows it at once.
fn delay_after(failures: u32) -> Option<Duration> {
    let doublings = failures.checked_sub(2)?;
    Some(FIRST_DELAY.saturating_mul(2_u32.saturating_pow(doublings)).min(MAX_DELAY))
}

/// The mark of a running recovery.
struct Recovering(Arc<Member>);

impl Drop for Recovering {
    fn drop(&mut self) {
        self.0.health.lock().is_recovering = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_attempts_double_from_a_second_to_a_minute() {
        assert_eq!(delay_after(1), None);
        let seconds = [2, 3, 4, 7, 8, 9, u32::MAX].map(|failures| delay_after(failures).map(|delay| delay.as_secs()));
        assert_eq!(seconds, [1, 2, 4, 32, 60, 60, 60].map(Some));
    }
}
