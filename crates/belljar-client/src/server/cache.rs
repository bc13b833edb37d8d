//! The cached lists of a session.

use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{Prompt as WirePrompt, Resource, ResourceTemplate, Tool};
use tokio::time::Instant;

use crate::toolset::ToolList;

/// The cached lists.
#[derive(Default)]
pub(super) struct Caches {
    pub(super) tools: Cache<Tool>,
    pub(super) listing: Mutex<Option<ToolListing>>,
    pub(super) resources: Cache<Resource>,
    pub(super) templates: Cache<ResourceTemplate>,
    pub(super) prompts: Cache<WirePrompt>,
}

impl Caches {
    pub(super) fn clear(&self) {
        self.tools.clear();
        self.resources.clear();
        self.templates.clear();
        self.prompts.clear();
    }
}

/// The definitions last shown to models, and the list that they were derived from.
pub(super) struct ToolListing {
    pub(super) tools: Arc<Vec<Tool>>,
    pub(super) definitions: ToolList,
}

/// A cached list.
pub(super) struct Cache<T>(Mutex<Option<CachedList<T>>>);

struct CachedList<T> {
    /// The value of the change counter before the list was requested.
    changes: u64,
    /// The time at which the list expires, if any.
    until: Option<Instant>,
    list: Arc<Vec<T>>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Cache<T> {
    pub(super) fn get(&self, changes: u64) -> Option<Arc<Vec<T>>> {
        let cached = self.0.lock();
        let cached = cached.as_ref()?;
        let is_fresh = cached.changes == changes && cached.until.is_none_or(|until| Instant::now() < until);
        is_fresh.then(|| cached.list.clone())
    }

    /// Returns the list that was last read, fresh or not.
    pub(super) fn latest(&self) -> Option<Arc<Vec<T>>> {
        self.0.lock().as_ref().map(|cached| cached.list.clone())
    }

    pub(super) fn set(&self, changes: u64, until: Option<Instant>, list: Arc<Vec<T>>) {
        *self.0.lock() = Some(CachedList { changes, until, list });
    }

    fn clear(&self) {
        *self.0.lock() = None;
    }
}

/// The kind of a list.
#[derive(Clone, Copy)]
pub(super) enum ListKind {
    Tools,
    Resources,
    Prompts,
}
