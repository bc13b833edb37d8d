//! The processor time of work on a thread, with that of other processes that work for it meanwhile.

use std::cell::Cell;
use std::time::Duration;

use crate::os::thread_time;

thread_local! {
    /// The time of other processes since the measurement of this thread began; `None` while nothing is measured.
    static ELSEWHERE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Does `work`, and returns its processor time: that of this thread, and what [`add_processor_time`] adds. Not
/// reentrant.
pub(crate) fn measure<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    ELSEWHERE.set(Some(Duration::ZERO));
    let begin = thread_time();
    let result = work();
    let own = thread_time().saturating_sub(begin);
    (result, own + ELSEWHERE.take().unwrap_or_default())
}

/// Returns whether the processor time of this thread's work is measured.
pub fn is_processor_time_measured() -> bool {
    ELSEWHERE.get().is_some()
}

/// Adds processor time that another process has used for the work of this thread.
pub fn add_processor_time(time: Duration) {
    ELSEWHERE.set(ELSEWHERE.get().map(|sum| sum + time));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_other_processes_is_added() {
        add_processor_time(Duration::from_secs(9));
        assert!(!is_processor_time_measured());
        let (is_measured, time) = measure(|| {
            add_processor_time(Duration::from_secs(1));
            add_processor_time(Duration::from_secs(2));
            is_processor_time_measured()
        });
        assert!(is_measured && time >= Duration::from_secs(3) && time < Duration::from_secs(4), "{time:?}");
        assert!(!is_processor_time_measured());
    }
}
