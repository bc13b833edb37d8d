//! Load shedding: the decision whether the machine has memory for new code, and the thread that measures.

use std::path::PathBuf;
use std::time::Duration;

use super::memory_files::MemoryFiles;
use super::registry::{LoadState, Tenants};

/// The interval of measurements.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// The part of a threshold of stalls above which memory is tight, and below which code is admitted again.
const TIGHT_STALL: f64 = 0.5;
/// The percentage of memory below the threshold at which memory is tight, and below which code is admitted again.
const TIGHT_MARGIN: f64 = 5.0;

/// A measurement of the machine's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MemoryReading {
    /// The percentage of the last ten seconds in which all tasks waited for memory.
    pub(super) stall: Option<f64>,
    /// The percentage of memory in use.
    pub(super) used: Option<f64>,
}

/// The percentages from which new code is refused. 0 turns one off.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadThresholds {
    /// Of the last ten seconds, in which all tasks waited for memory.
    pub stall: f64,
    /// Of memory in use.
    pub used: f64,
}

/// Returns what a reading allows. Refusals go on until the reading is clearly below the thresholds, so that they do not
/// alternate with admissions.
fn next_load(current: &LoadState, reading: MemoryReading, thresholds: LoadThresholds) -> LoadState {
    let LoadThresholds { stall, used } = thresholds;
    let measured = |value: Option<f64>, threshold: f64| value.filter(|_| threshold > 0.0);
    let (stalled, in_use) = (measured(reading.stall, stall), measured(reading.used, used));
    let stall_is_tight = stalled.is_some_and(|value| value >= stall * TIGHT_STALL);
    let use_is_tight = in_use.is_some_and(|value| value >= used - TIGHT_MARGIN);
    let was_shedding = matches!(current, LoadState::Shedding(_));
    let sheds_stall = stalled.is_some_and(|value| value >= stall) || (was_shedding && stall_is_tight);
    let sheds_use = in_use.is_some_and(|value| value >= used) || (was_shedding && use_is_tight);
    match (stalled.filter(|_| sheds_stall), in_use.filter(|_| sheds_use)) {
        (_, Some(value)) => LoadState::Shedding(format!("{value:.0} % of it are in use")),
        (Some(value), None) => LoadState::Shedding(format!("all tasks waited for it in {value:.0} % of the last 10 s")),
        (None, None) if stall_is_tight || use_is_tight => LoadState::Tight,
        (None, None) => LoadState::Normal,
    }
}

/// Measures the memory every second for as long as `tenants` exists. `directory` has the files of a control group; by
/// default, it is that of the process.
///
/// # Errors
/// Fails if no thread can be started.
pub fn watch_memory(tenants: &Tenants, thresholds: LoadThresholds, directory: Option<PathBuf>) -> std::io::Result<()> {
    if thresholds.stall <= 0.0 && thresholds.used <= 0.0 {
        return Ok(());
    }
    let files = directory.map_or_else(MemoryFiles::for_process, MemoryFiles::in_directory);
    let tenants = tenants.downgrade();
    let thread = std::thread::Builder::new().name("memory".into()).stack_size(128 << 10);
    thread.spawn(move || {
        let mut current = LoadState::Normal;
        while let Some(tenants) = tenants.upgrade() {
            let next = next_load(&current, files.read(), thresholds);
            if next != LoadState::Normal || current != LoadState::Normal {
                if std::mem::discriminant(&next) != std::mem::discriminant(&current) {
                    tracing::warn!(?next, "the state of memory has changed");
                }
                tenants.set_load(next.clone());
            }
            current = next;
            drop(tenants);
            std::thread::sleep(MEASURE_INTERVAL);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLDS: LoadThresholds = LoadThresholds { stall: 20.0, used: 95.0 };

    fn reading(stall: f64, used: f64) -> MemoryReading {
        MemoryReading { stall: Some(stall), used: Some(used) }
    }

    #[test]
    fn code_is_refused_above_a_threshold_until_clearly_below() {
        let mut load = LoadState::Normal;
        let mut step = |stall, used| {
            load = next_load(&load, reading(stall, used), THRESHOLDS);
            match &load {
                LoadState::Normal => "normal",
                LoadState::Tight => "tight",
                LoadState::Shedding(_) => "shedding",
            }
        };
        for (stall, used, expected) in [
            (0.0, 50.0, "normal"),
            (0.0, 91.0, "tight"),
            (0.0, 94.9, "tight"),
            (0.0, 95.0, "shedding"),
            (0.0, 92.0, "shedding"),
            (0.0, 89.0, "normal"),
            (9.9, 0.0, "normal"),
            (10.0, 0.0, "tight"),
            (20.0, 0.0, "shedding"),
            (12.0, 0.0, "shedding"),
            (5.0, 0.0, "normal"),
        ] {
            assert_eq!(step(stall, used), expected, "{stall} {used}");
        }
    }

    #[test]
    fn what_is_not_measured_or_turned_off_refuses_nothing() {
        let load = next_load(&LoadState::Normal, MemoryReading::default(), THRESHOLDS);
        assert_eq!(load, LoadState::Normal);
        let off = LoadThresholds { stall: 0.0, used: 0.0 };
        assert_eq!(next_load(&LoadState::Normal, reading(100.0, 100.0), off), LoadState::Normal);
    }
}
