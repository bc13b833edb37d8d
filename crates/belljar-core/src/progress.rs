//! Progress of long work: a download, a compilation, the building of an image.
//!
//! The crates that do the work know only these two traits; the command line draws bars or lines from them, and the
//! server sends notifications.

/// The unit that a [`ProgressStep`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as KiB and MiB.
    Bytes,
    /// Items: files, modules, functions.
    Items,
}

/// A piece of work that may take longer than a second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressStep {
    /// The description that users see: `downloading python_stdlib.zip`.
    pub name: String,
    /// The amount of work, in [`ProgressStep::unit`]s; `None` when it is not known beforehand.
    pub total: Option<u64>,
    /// The unit of the numbers.
    pub unit: Unit,
}

impl ProgressStep {
    /// Creates a step that processes `total` bytes.
    pub fn bytes(name: impl Into<String>, total: u64) -> Self {
        ProgressStep { name: name.into(), total: Some(total), unit: Unit::Bytes }
    }

    /// Creates a step that processes `total` items.
    pub fn items(name: impl Into<String>, total: u64) -> Self {
        ProgressStep { name: name.into(), total: Some(total), unit: Unit::Items }
    }

    /// Creates a step of unknown length.
    pub fn indeterminate(name: impl Into<String>) -> Self {
        ProgressStep { name: name.into(), total: None, unit: Unit::Items }
    }
}

/// A receiver of progress.
pub trait Progress: Send + Sync {
    /// Begins a step. It ends with [`StepProgress::finish`], or is abandoned when the value is dropped.
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress>;
}

/// A running [`ProgressStep`]. Dropped without [`finish`](StepProgress::finish), the step failed.
pub trait StepProgress: Send + Sync {
    /// Records that `amount` more units are done. Called often: must be cheap, and may be called from any thread.
    fn advance(&self, amount: u64);

    /// Ends the step.
    fn finish(self: Box<Self>);
}

/// A [`Progress`] that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _step: ProgressStep) -> Box<dyn StepProgress> {
        Box::new(NoProgress)
    }
}

impl StepProgress for NoProgress {
    fn advance(&self, _amount: u64) {}

    fn finish(self: Box<Self>) {}
}
