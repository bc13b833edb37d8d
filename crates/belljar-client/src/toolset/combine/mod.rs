//! Several toolsets as one.

mod member;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all, try_join_all};
use parking_lot::Mutex;
use serde_json::{Map, Value};

use self::member::{Hold, Holds, Member, UnavailableHandler};
pub use self::member::{ToolsetState, ToolsetStatus};
use super::{CloseGuard, Retry, RetryReason, ToolList, ToolOutcome, Toolset, ToolsetGuard};
use crate::error::McpError;
use crate::run_context::RunContext;

/// Several toolsets as one. Two tools of the same name are an error that names both toolsets.
///
/// A call goes to the toolset that has the tool; the others need not be available for it. The others work without an
/// [optional](Self::with_optional) toolset, which comes back when it is available again.
///
/// ```
/// use belljar_mcp_client::{CombinedToolset, McpServerStdio};
///
/// let git = McpServerStdio::new("mcp-server-git").tool_prefix("git").build();
/// let files = McpServerStdio::new("server-filesystem").tool_prefix("files").build();
/// let all = CombinedToolset::new().with(git).with_optional(files);
/// ```
#[derive(Default)]
pub struct CombinedToolset {
    members: Vec<Arc<Member>>,
    on_unavailable: Option<UnavailableHandler>,
    holds: Holds,
    /// The last list, until a list of one of the toolsets changes.
    listing: Mutex<Option<Arc<Listing>>>,
}

/// A combined list and the lists that it consists of.
struct Listing {
    /// The lists of the toolsets; `None` for one that is unavailable.
    parts: Vec<Option<ToolList>>,
    all: ToolList,
    /// The position of the toolset that has the tool of this name.
    owners: HashMap<String, usize>,
}

impl Listing {
    fn consists_of(&self, parts: &[Option<ToolList>]) -> bool {
        let is_same = |(one, other): (&Option<ToolList>, &Option<ToolList>)| match (one, other) {
            (Some(one), Some(other)) => one.is_same(other),
            (None, None) => true,
            _ => false,
        };
        self.parts.len() == parts.len() && self.parts.iter().zip(parts).all(is_same)
    }
}

impl CombinedToolset {
    /// Creates an empty toolset.
    ///
    /// ```
    /// # use belljar_mcp_client::{CombinedToolset, Toolset};
    /// assert_eq!(CombinedToolset::new().label(), "");
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a toolset.
    ///
    /// ```
    /// # use belljar_mcp_client::{CombinedToolset, McpServerStdio, Toolset};
    /// let (git, mail) = (McpServerStdio::new("git").build(), McpServerStdio::new("mail").build());
    /// let all = CombinedToolset::new().with(git).with(mail);
    /// assert_eq!(all.label(), "git + mail");
    /// ```
    pub fn with(mut self, toolset: impl Toolset) -> Self {
        self.members.push(Arc::new(Member::new(Arc::new(toolset), false)));
        self
    }

    /// Adds a toolset that the others do not need: as long as it is unavailable, the list is without its tools. Each
    /// list starts an attempt to reach it again in the background, at most one per minute in the end; a child process
    /// that ended is then started again.
    ///
    /// ```
    /// # use belljar_mcp_client::{CombinedToolset, McpServerStdio, Toolset};
    /// let (git, mail) = (McpServerStdio::new("git").build(), McpServerStdio::new("mail").build());
    /// let all = CombinedToolset::new().with(git).with_optional(mail);
    /// ```
    pub fn with_optional(mut self, toolset: impl Toolset) -> Self {
        self.members.push(Arc::new(Member::new(Arc::new(toolset), true)));
        self
    }

    /// Sets a handler that is called with the label of an optional toolset and the error when it is found to be
    /// unavailable. It must not block.
    ///
    /// ```
    /// # use belljar_mcp_client::CombinedToolset;
    /// let all = CombinedToolset::new().on_unavailable(|toolset, error| eprintln!("without {toolset}: {error}"));
    /// ```
    pub fn on_unavailable(mut self, handler: impl Fn(&str, &McpError) + Send + Sync + 'static) -> Self {
        self.on_unavailable = Some(Arc::new(handler));
        self
    }

    /// Returns the status of each toolset, in the order in which they were added.
    ///
    /// ```
    /// # use belljar_mcp_client::CombinedToolset;
    /// for status in CombinedToolset::new().statuses() {
    ///     println!("{}: {:?}", status.label, status.state);
    /// }
    /// ```
    pub fn statuses(&self) -> Vec<ToolsetStatus> {
        self.members.iter().map(|member| member.status()).collect()
    }

    /// Lists every toolset at once.
    async fn list(&self, run: &RunContext) -> Result<Arc<Listing>, McpError> {
        let lists = self.members.iter().enumerate().map(|(position, member)| self.list_of(position, member, run));
        let parts = try_join_all(lists).await?;
        if let Some(last) = self.listing.lock().as_ref().filter(|last| last.consists_of(&parts)) {
            return Ok(last.clone());
        }
        let mut owners = HashMap::new();
        for (position, tools) in parts.iter().enumerate() {
            for tool in tools.iter().flatten() {
                if let Some(first) = owners.insert(tool.name.clone(), position) {
                    let (first, second) = (&self.members[first].toolset, &self.members[position].toolset);
                    return Err(McpError::NameClash {
                        name: tool.name.clone(),
                        first: first.label(),
                        second: second.label(),
                        hint: second.name_clash_hint(),
                    });
                }
            }
        }
        let all = parts.iter().flatten().flatten().cloned().collect();
        let listing = Arc::new(Listing { parts, all, owners });
        *self.listing.lock() = Some(listing.clone());
        Ok(listing)
    }

    /// Lists one toolset; `None` if it is optional and unavailable.
    async fn list_of(
        &self,
        position: usize,
        member: &Arc<Member>,
        run: &RunContext,
    ) -> Result<Option<ToolList>, McpError> {
        if member.is_optional && member.is_unavailable() {
            member.recover(position, &self.holds, run);
            return Ok(None);
        }
        member.attempt(member.toolset.tools(run), self.on_unavailable.as_ref()).await
    }

    /// Calls a tool of the toolset that has it according to its current list, whether or not the other toolsets are
    /// available. `not` is the position of a toolset that does not have it.
    async fn find_and_call(
        &self,
        not: Option<usize>,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        let lists = join_all(self.members.iter().map(|member| member.toolset.tools(run))).await;
        let has_tool = |tools: &Result<ToolList, _>| tools.as_ref().is_ok_and(|tools| tools.get(name).is_some());
        if let Some(owner) = lists.iter().position(has_tool).filter(|owner| Some(*owner) != not) {
            return self.call_member(owner, run, name, arguments).await;
        }
        let known = lists.iter().flatten().flat_map(ToolList::names);
        let outcome = ToolOutcome::unknown_tool(name, known);
        let failed = self.members.iter().zip(&lists).filter(|(_, tools)| tools.is_err());
        let failed: Vec<String> = failed.map(|(member, _)| member.toolset.label()).collect();
        if failed.is_empty() {
            return Ok(outcome);
        }
        // An error that is not for the model, such as a missing authorization, concerns the program.
        for (member, tools) in self.members.iter().zip(lists) {
            if let Err(error) = tools
                && !member.is_optional
                && !error.is_for_model()
            {
                return Err(error);
            }
        }
        let message = format!("{}; unavailable at the moment: {}", outcome.to_text(), failed.join(", "));
        Ok(ToolOutcome::Retry(Retry::new(message).with_reason(RetryReason::UnknownTool)))
    }

    async fn call_member(
        &self,
        position: usize,
        run: &RunContext,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<ToolOutcome, McpError> {
        match self.members.get(position) {
            Some(member) => {
                let outcome = member.toolset.call(run, name, arguments).await?;
                if let ToolOutcome::Retry(Retry { reason: RetryReason::Disconnected, message, .. }) = &outcome
                    && member.is_optional
                {
                    member.failed(message);
                }
                Ok(outcome)
            }
            None => Ok(ToolOutcome::unknown_tool(name, [])),
        }
    }
}

impl Clone for CombinedToolset {
    /// Returns another handle to the same toolsets.
    fn clone(&self) -> Self {
        Self {
            members: self.members.clone(),
            on_unavailable: self.on_unavailable.clone(),
            holds: self.holds.clone(),
            listing: Mutex::new(self.listing.lock().clone()),
        }
    }
}

impl<T: Toolset> FromIterator<T> for CombinedToolset {
    fn from_iter<I: IntoIterator<Item = T>>(toolsets: I) -> Self {
        toolsets.into_iter().fold(Self::new(), Self::with)
    }
}

impl std::fmt::Debug for CombinedToolset {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.members.iter().map(|member| member.toolset.label())).finish()
    }
}

/// The guard of a combination.
struct CombinedGuard(Arc<Hold>);

impl CloseGuard for CombinedGuard {
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<(), McpError>> {
        let guards: ToolsetGuard = self.0.take_all().into_iter().collect();
        guards.close().boxed()
    }
}

#[async_trait]
impl Toolset for CombinedToolset {
    fn label(&self) -> String {
        self.members.iter().map(|member| member.toolset.label()).collect::<Vec<_>>().join(" + ")
    }

    async fn tools(&self, run: &RunContext) -> Result<ToolList, McpError> {
        Ok(self.list(run).await?.all.clone())
    }

    async fn call(&self, run: &RunContext, name: &str, arguments: Map<String, Value>) -> Result<ToolOutcome, McpError> {
        let owner = self.listing.lock().as_ref().and_then(|listing| listing.owners.get(name).copied());
        if let Some(owner) = owner {
            let outcome = self.call_member(owner, run, name, arguments.clone()).await?;
            if !outcome.is_unknown_tool() {
                return Ok(outcome);
            }
        }
        // The list is out of date, or of another run.
        self.find_and_call(owner, run, name, arguments).await
    }

    async fn instructions(&self, run: &RunContext) -> Result<Option<String>, McpError> {
        let each = self.members.iter().filter(|member| !(member.is_optional && member.is_unavailable()));
        let each = each.map(|member| member.unless_optional(member.toolset.instructions(run)));
        let texts: Vec<String> = try_join_all(each).await?.into_iter().flatten().collect();
        Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
    }

    async fn enter(&self) -> Result<ToolsetGuard, McpError> {
        let each = self.members.iter();
        let each = each.map(|member| member.attempt(member.toolset.enter(), self.on_unavailable.as_ref()));
        let hold = Arc::new(Hold::new(try_join_all(each).await?));
        let mut holds = self.holds.lock();
        holds.retain(|hold| hold.strong_count() > 0);
        holds.push(Arc::downgrade(&hold));
        Ok(ToolsetGuard::new(CombinedGuard(hold)))
    }

    async fn for_run(&self, run: &RunContext) -> Result<Option<Arc<dyn Toolset>>, McpError> {
        let each = self.members.iter().map(|member| member.unless_optional(member.toolset.for_run(run)));
        let replaced = try_join_all(each).await?;
        if replaced.iter().all(Option::is_none) {
            return Ok(None);
        }
        let members = self.members.iter().zip(replaced).map(|(member, replaced)| match replaced {
            Some(toolset) => Arc::new(member.with_toolset(toolset)),
            None => member.clone(),
        });
        let on_unavailable = self.on_unavailable.clone();
        Ok(Some(Arc::new(Self { members: members.collect(), on_unavailable, ..Self::default() })))
    }
}
