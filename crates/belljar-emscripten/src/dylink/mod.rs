//! Dynamic linking as Emscripten does it: `dlopen` of side modules.

/// The libraries that one instance has loaded.
#[derive(Default)]
pub(crate) struct Linked {}
