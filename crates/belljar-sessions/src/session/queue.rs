//! The queue of one session.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Job;
use belljar_core::kernel::InterruptHandle;

/// The queue of a session, and the state of the job that a thread works on.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) jobs: VecDeque<QueuedJob>,
    /// The bytes of code and files in `jobs`.
    pub(super) bytes: usize,
    /// The number of jobs that were submitted so far.
    pub(super) submitted: u64,
    /// The number of the job that a thread works on or worked on last.
    pub(super) current: u64,
    /// Set while the current job is a cell whose code has not begun.
    pub(super) cell_is_starting: bool,
    pub(super) busy: bool,
    pub(super) closed: bool,
    pub(super) running: Option<Arc<dyn InterruptHandle>>,
    /// Keeps the next cell from beginning, if its number is at most this.
    pub(super) interrupt_next: Option<u64>,
}

/// A job and its place in the queue.
pub(super) struct QueuedJob {
    number: u64,
    kind: JobKind,
    job: Job,
}

/// The kind of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobKind {
    /// A cell with code of this many bytes.
    Cell(usize),
    /// Another operation, with a file of this many bytes.
    Other(usize),
}

impl JobKind {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Cell(bytes) | Self::Other(bytes) => bytes,
        }
    }
}

/// The maximum size of a session's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) jobs: usize,
    /// The bytes of code and files. A single job may exceed it.
    pub(crate) bytes: usize,
}

impl Queue {
    pub(super) fn push(&mut self, kind: JobKind, job: Job) {
        self.submitted += 1;
        self.bytes += kind.bytes();
        self.jobs.push_back(QueuedJob { number: self.submitted, kind, job });
    }

    pub(super) fn pop(&mut self) -> Option<Job> {
        let QueuedJob { number, kind, job } = self.jobs.pop_front()?;
        self.bytes -= kind.bytes();
        self.current = number;
        self.cell_is_starting = matches!(kind, JobKind::Cell(_));
        Some(job)
    }

    pub(super) fn take_jobs(&mut self) -> VecDeque<QueuedJob> {
        self.bytes = 0;
        std::mem::take(&mut self.jobs)
    }

    /// Returns whether a cell was submitted whose code has not begun.
    pub(super) fn has_pending_cell(&self) -> bool {
        self.cell_is_starting || self.jobs.iter().any(|queued| matches!(queued.kind, JobKind::Cell(_)))
    }
}
