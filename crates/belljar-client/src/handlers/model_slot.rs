//! The model of a server, which can be replaced while the server is in use.

use std::sync::Arc;

use parking_lot::RwLock;

use super::Model;

/// The model of a server. A clone is the same slot.
#[derive(Clone, Default)]
pub(crate) struct ModelSlot(Arc<RwLock<Option<Arc<dyn Model>>>>);

impl ModelSlot {
    pub(crate) fn new(model: impl Model) -> Self {
        let slot = Self::default();
        slot.set(model);
        slot
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Model>> {
        self.0.read().clone()
    }

    pub(crate) fn set(&self, model: impl Model) {
        *self.0.write() = Some(Arc::new(model));
    }

    /// Returns another slot with the same model.
    pub(crate) fn detached(&self) -> Self {
        Self(Arc::new(RwLock::new(self.get())))
    }
}
