//! Long work, told to whoever waits for it: a download, a compilation, the making of an image.
//!
//! The parts that do the work know only these two traits; the command line draws bars or lines from them, and a
//! server may turn them into notifications.

/// What a [`Step`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, shown as KiB and MiB.
    Bytes,
    /// Things: files, modules, functions.
    Items,
}

/// One piece of work that may take long enough for a person to wonder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is being done, in the words of the person waiting: `downloading python_stdlib.zip`.
    pub name: String,
    /// How much there is to do, in [`Step::unit`]s. `None` when nobody knows beforehand.
    pub total: Option<u64>,
    /// What the numbers count.
    pub unit: Unit,
}

impl Step {
    /// Work on `total` bytes.
    pub fn bytes(name: impl Into<String>, total: u64) -> Self {
        Step { name: name.into(), total: Some(total), unit: Unit::Bytes }
    }

    /// Work on `total` things.
    pub fn items(name: impl Into<String>, total: u64) -> Self {
        Step { name: name.into(), total: Some(total), unit: Unit::Items }
    }

    /// Work whose extent is not known.
    pub fn unmeasured(name: impl Into<String>) -> Self {
        Step { name: name.into(), total: None, unit: Unit::Items }
    }
}

/// Whoever wants to know what takes so long.
pub trait Progress: Send + Sync {
    /// A step begins. It ends with [`StepProgress::finish`], or is given up when the value is dropped.
    fn start(&self, step: Step) -> Box<dyn StepProgress>;
}

/// One running [`Step`]. Dropped without [`finish`](StepProgress::finish), the step failed.
pub trait StepProgress: Send + Sync {
    /// `amount` more units are done. Called often: must be cheap, and may be called from any thread.
    fn advance(&self, amount: u64);

    /// All is done.
    fn finish(self: Box<Self>);
}

/// Nobody wants to know.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn start(&self, _step: Step) -> Box<dyn StepProgress> {
        Box::new(NoProgress)
    }
}

impl StepProgress for NoProgress {
    fn advance(&self, _amount: u64) {}

    fn finish(self: Box<Self>) {}
}
