//! Progress of long work on standard error: bars on a terminal, plain lines elsewhere.

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use belljar_core::progress::{ProgressStep, StepProgress, Unit};
use belljar_core::{NoProgress, Progress};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

/// The time after which a step is reported with a line.
const REPORT_DELAY: Duration = Duration::from_secs(1);

/// The update interval of bars.
const TICK_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the reporter for standard error.
pub(crate) fn reporter(quiet: bool) -> Box<dyn Progress> {
    if quiet {
        Box::new(NoProgress)
    } else if std::io::stderr().is_terminal() {
        Box::new(Bars::default())
    } else {
        let write_line = |line: &str| {
            // The work continues if standard error is closed.
            let _ = writeln!(std::io::stderr(), "{line}");
        };
        Box::new(Lines { write_line: Arc::new(write_line), delay: REPORT_DELAY })
    }
}

/// The reporter that shows a bar for each step until it is done.
#[derive(Default)]
struct Bars {
    bars: MultiProgress,
}

impl Progress for Bars {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        let bar = match step.total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let template = match (step.total, step.unit) {
            (None, _) => "{spinner} {msg} {elapsed}",
            (Some(_), Unit::Bytes) => "{msg:40} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}",
            (Some(_), Unit::Items) => "{msg:40} {bar:30} {pos}/{len}",
        };
        // The templates are constants. If one failed to parse, indicatif's default style would be used.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let bar = self.bars.add(bar);
        bar.set_message(step.name);
        bar.enable_steady_tick(TICK_INTERVAL);
        Box::new(Bar(bar))
    }
}

struct Bar(ProgressBar);

impl StepProgress for Bar {
    fn advance(&self, amount: u64) {
        self.0.inc(amount);
    }

    fn finish(self: Box<Self>) {
        self.0.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // A failed step must not leave its bar above the error.
        self.0.finish_and_clear();
    }
}

/// A function that writes one line.
type LineWriter = Arc<dyn Fn(&str) + Send + Sync>;

/// The reporter that writes a line when a step takes longer than `delay`, and one at the end of such a step.
struct Lines {
    write_line: LineWriter,
    delay: Duration,
}

impl Progress for Lines {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        let (ended, end) = mpsc::channel::<Infallible>();
        let (write_line, delay, name) = (self.write_line.clone(), self.delay, step.name.clone());
        // A step may be one long call that never advances, so that another thread measures the time. Without that
        // thread the lines are missing.
        let watcher = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let slow = end.recv_timeout(delay) == Err(RecvTimeoutError::Timeout);
            if slow {
                write_line(&format!("{name} ..."));
            }
            slow
        });
        Box::new(Line {
            step,
            write_line: self.write_line.clone(),
            started: Instant::now(),
            done: AtomicU64::new(0),
            watcher: watcher.ok().map(|watcher| (ended, watcher)),
        })
    }
}

struct Line {
    step: ProgressStep,
    write_line: LineWriter,
    started: Instant,
    done: AtomicU64,
    /// The thread, which returns whether it announced the step, and the sender whose drop ends it.
    watcher: Option<(Sender<Infallible>, JoinHandle<bool>)>,
}

impl Line {
    /// Ends the thread. Returns whether the step was announced.
    fn was_announced(&mut self) -> bool {
        self.watcher.take().is_some_and(|(ended, watcher)| {
            drop(ended);
            watcher.join().unwrap_or(false)
        })
    }
}

impl StepProgress for Line {
    fn advance(&self, amount: u64) {
        self.done.fetch_add(amount, Ordering::Relaxed);
    }

    fn finish(mut self: Box<Self>) {
        if self.was_announced() {
            let amount = match (self.done.load(Ordering::Relaxed), self.step.unit) {
                (0, _) => String::new(),
                (done, Unit::Bytes) => format!("{} in ", HumanBytes(done)),
                (done, Unit::Items) => format!("{done} in "),
            };
            let seconds = self.started.elapsed().as_secs_f64();
            (self.write_line)(&format!("{}: done ({amount}{seconds:.1} s)", self.step.name));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.was_announced();
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Returns a reporter, the list of lines that it writes, and a channel that receives a message for each line.
    fn lines(delay: Duration) -> (Lines, Arc<Mutex<Vec<String>>>, mpsc::Receiver<()>) {
        let written = Arc::new(Mutex::new(Vec::new()));
        let (sender, receiver) = mpsc::channel();
        let (list, sender) = (written.clone(), Mutex::new(sender));
        let write_line = move |line: &str| {
            list.lock().push(line.to_owned());
            sender.lock().send(()).unwrap();
        };
        (Lines { write_line: Arc::new(write_line), delay }, written, receiver)
    }

    #[test]
    fn long_step_has_a_line_at_its_start_and_its_end() {
        let (lines, written, receiver) = lines(Duration::ZERO);
        let step = lines.start(ProgressStep::bytes("downloading", 2048));
        receiver.recv().unwrap();
        step.advance(2048);
        step.finish();
        let written = written.lock();
        assert_eq!(written[0], "downloading ...");
        assert!(written[1].starts_with("downloading: done (2.00 KiB in "), "{written:?}");
    }

    #[test]
    fn short_step_writes_no_line() {
        let (lines, written, _receiver) = lines(Duration::MAX);
        lines.start(ProgressStep::indeterminate("unpacking")).finish();
        assert!(written.lock().is_empty());
    }

    #[test]
    fn failed_step_is_not_reported_as_done() {
        let (lines, written, receiver) = lines(Duration::ZERO);
        let step = lines.start(ProgressStep::items("compiling", 3));
        receiver.recv().unwrap();
        drop(step);
        assert_eq!(*written.lock(), ["compiling ..."]);
    }
}
