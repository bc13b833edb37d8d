//! What a person sees of work that takes long: bars on a terminal, plain lines elsewhere. Always on standard error.

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use belljar_core::progress::{NoProgress, Progress, Step, StepProgress, Unit};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

/// Steps shorter than this are not worth a line.
const WORTH_A_LINE: Duration = Duration::from_secs(1);

/// How often a bar without known extent turns.
const TURN_INTERVAL: Duration = Duration::from_millis(100);

/// The reporter that fits where standard error goes.
pub(crate) fn reporter(quiet: bool) -> Box<dyn Progress> {
    if quiet {
        Box::new(NoProgress)
    } else if std::io::stderr().is_terminal() {
        Box::new(Bars::default())
    } else {
        let say = |line: &str| {
            // Standard error may be closed. That is no reason to stop working.
            let _ = writeln!(std::io::stderr(), "{line}");
        };
        Box::new(Lines { say: Arc::new(say), patience: WORTH_A_LINE })
    }
}

/// A bar per step; those that are done disappear.
#[derive(Default)]
struct Bars {
    bars: MultiProgress,
}

impl Progress for Bars {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        let bar = match step.total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let template = match (step.total, step.unit) {
            (None, _) => "{spinner} {msg} {elapsed}",
            (Some(_), Unit::Bytes) => "{msg:40} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}",
            (Some(_), Unit::Items) => "{msg:40} {bar:30} {pos}/{len}",
        };
        // The templates are ours; should one not parse, indicatif's own look serves.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let bar = self.bars.add(bar);
        bar.set_message(step.name);
        bar.enable_steady_tick(TURN_INTERVAL);
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
        // A step that failed leaves no half bar above the error.
        self.0.finish_and_clear();
    }
}

/// Takes one line to be shown.
type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// A line when a step turns out to take longer than `patience`, and one at the end of such a step.
struct Lines {
    say: Say,
    patience: Duration,
}

impl Progress for Lines {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        let (ended, end) = mpsc::channel::<Infallible>();
        let (say, patience, name) = (self.say.clone(), self.patience, step.name.clone());
        // The step may be one long call that never advances, so somebody else has to watch the time. If the system
        // refuses a thread, the lines are missing: no reason to fail.
        let watcher = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let slow = end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
            if slow {
                say(&format!("{name} ..."));
            }
            slow
        });
        Box::new(Line {
            step,
            say: self.say.clone(),
            begun: Instant::now(),
            done: AtomicU64::new(0),
            watch: watcher.ok().map(|watcher| (ended, watcher)),
        })
    }
}

struct Line {
    step: Step,
    say: Say,
    begun: Instant,
    done: AtomicU64,
    /// Dropping the sender ends the thread, which answers whether it announced the step.
    watch: Option<(Sender<Infallible>, JoinHandle<bool>)>,
}

impl Line {
    /// Ends the watching; answers whether the step was announced.
    fn was_announced(&mut self) -> bool {
        self.watch.take().is_some_and(|(ended, watcher)| {
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
            let seconds = self.begun.elapsed().as_secs_f64();
            (self.say)(&format!("{}: done ({amount}{seconds:.1} s)", self.step.name));
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
    use std::sync::Mutex;

    use super::*;

    /// Lines that go into a list, which a channel tells of.
    fn lines(patience: Duration) -> (Lines, Arc<Mutex<Vec<String>>>, mpsc::Receiver<()>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = mpsc::channel();
        let (list, tell) = (said.clone(), Mutex::new(tell));
        let say = move |line: &str| {
            list.lock().unwrap().push(line.to_owned());
            tell.lock().unwrap().send(()).unwrap();
        };
        (Lines { say: Arc::new(say), patience }, said, told)
    }

    #[test]
    fn a_long_step_has_a_line_at_its_start_and_one_at_its_end() {
        let (lines, said, told) = lines(Duration::ZERO);
        let step = lines.start(Step::bytes("downloading", 2048));
        told.recv().unwrap();
        step.advance(2048);
        step.finish();
        let said = said.lock().unwrap();
        assert_eq!(said[0], "downloading ...");
        assert!(said[1].starts_with("downloading: done (2.00 KiB in "), "{said:?}");
    }

    #[test]
    fn a_short_step_says_nothing() {
        let (lines, said, _told) = lines(Duration::MAX);
        lines.start(Step::unmeasured("unpacking")).finish();
        assert!(said.lock().unwrap().is_empty());
    }

    #[test]
    fn a_failed_step_is_not_called_done() {
        let (lines, said, told) = lines(Duration::ZERO);
        let step = lines.start(Step::items("compiling", 3));
        told.recv().unwrap();
        drop(step);
        assert_eq!(*said.lock().unwrap(), ["compiling ..."]);
    }
}
