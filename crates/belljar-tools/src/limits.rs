//! The limits of the tool calls of one run.

use std::time::Duration;

/// The limits of the tool calls of one run or cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// The maximum number of calls.
    pub calls: u32,
    /// The maximum number of calls that run at the same time. Further calls wait.
    pub concurrency: u16,
    /// The maximum time of one call, from when it is sent.
    pub timeout: Duration,
    /// The maximum size of the result of one call, in bytes of JSON and of binary contents.
    pub result_bytes: u64,
    /// The maximum size of all results, in bytes.
    pub total_bytes: u64,
    /// The maximum time during which at least one call is waited for, approval included. The code's own limit of time
    /// does not run meanwhile.
    pub wait: Duration,
}

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            calls: 100,
            concurrency: 8,
            timeout: Duration::from_secs(60),
            result_bytes: 8 << 20,
            total_bytes: 64 << 20,
            wait: Duration::from_secs(600),
        }
    }
}
