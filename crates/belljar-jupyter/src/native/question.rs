//! Asking the shell what is no cell: completions, what a name is, whether a cell is whole, expressions after a cell.
//!
//! The kernel may not answer at all, nor to this question, nor with what is an answer. Whoever asks waits a few seconds
//! at most; after that the shell is interrupted, and found by the next cell as it is then.

use std::time::{Duration, Instant};

use belljar_core::kernel::Question;
use serde_json::Value;

use crate::native::cell::{COLLAPSE, STOPPED, TURN};
use crate::native::client::{Channel, Client};
use crate::native::content::{self, Said};
use crate::native::nursery::Process;
use crate::native::switch::{Switch, Wish};
use crate::native::wire::WireError;
use crate::native::wire::message::Received;

/// How long an answer may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// How long the shell may take to be done after an interrupt, and how long an answer may come behind the word that it is.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// For this reason, in words.
    Because(String),
    /// The interpreter ended.
    Ended,
}

/// Asks, and waits for the content of the reply.
///
/// # Errors
/// When there is none within `patience` and [`AFTERWARDS`]. A kernel that breaks the protocol is ended.
pub(crate) fn ask(
    client: &mut Client,
    process: &Process,
    switch: &Switch,
    question: &Question,
    patience: Duration,
) -> Result<Value, Unanswered> {
    let broken = |error: &WireError| {
        if matches!(error, WireError::Closed) && process.ends_before(Instant::now() + COLLAPSE) {
            return Unanswered::Ended;
        }
        process.kill();
        Unanswered::Because(format!("Crash: {error}"))
    };
    let (id, kind) = client.put(question).map_err(|error| broken(&error))?;
    let mut asked = Asked { id, kind, busy: false, idle: None, reply: None };
    let begun = Instant::now();
    let mut interrupted: Option<(Instant, &str)> = None;
    loop {
        let until = match (interrupted, asked.idle) {
            (Some((since, _)), _) | (None, Some(since)) => since + AFTERWARDS,
            (None, None) => begun + patience,
        };
        let ready = client.wait(&[process.death(), switch.bell()], until).map_err(|error| broken(&error))?;
        asked.listen(client).map_err(|error| broken(&error))?;
        if let Some(reply) = &asked.reply {
            return content::answer(reply).map_err(Unanswered::Because);
        }
        if ready[0] {
            return Err(if switch.take() == Wish::Stop { because(STOPPED) } else { Unanswered::Ended });
        }
        let wish = switch.take();
        if wish == Wish::Stop {
            process.kill();
            return Err(because(STOPPED));
        }
        if let Some((since, why)) = interrupted {
            if asked.idle.is_some() || since.elapsed() >= AFTERWARDS {
                return Err(because(why));
            }
        } else if wish == Wish::Interrupt || begun.elapsed() >= patience {
            let why = if wish == Wish::Interrupt {
                "KeyboardInterrupt"
            } else {
                "TimeoutError: the kernel gave no answer in time"
            };
            // One that has not begun is at something else, which is not to be interrupted for this.
            if asked.busy {
                process.interrupt();
            }
            interrupted = Some((Instant::now(), why));
        } else if asked.idle.is_some_and(|since| since.elapsed() >= AFTERWARDS) {
            return Err(because("the kernel gave no answer"));
        }
    }
}

fn because(why: &str) -> Unanswered {
    Unanswered::Because(why.into())
}

/// What the kernel has said of the question.
struct Asked {
    /// The request's.
    id: String,
    /// What kind of message its answer is.
    kind: &'static str,
    busy: bool,
    /// Since when it is done.
    idle: Option<Instant>,
    reply: Option<Received>,
}

impl Asked {
    /// Takes what has come. What is said otherwise belongs to nobody.
    fn listen(&mut self, client: &mut Client) -> Result<(), WireError> {
        for channel in [Channel::Shell, Channel::Iopub, Channel::Stdin, Channel::Control] {
            for _ in 0..TURN {
                let Some(message) = client.next(channel)? else { break };
                if message.parent != self.id {
                    continue;
                }
                match channel {
                    Channel::Shell if message.kind == self.kind => {
                        self.reply.get_or_insert(message);
                    }
                    Channel::Iopub => match Said::read(&message) {
                        Some(Said::Busy) => self.busy = true,
                        Some(Said::Idle) => {
                            self.idle.get_or_insert_with(Instant::now);
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::client::tests::{Kernel, Reply};

    const BRIEF: Duration = Duration::from_millis(200);

    /// Asks a kernel for completions that answers as it is told.
    fn ask_one(reply: Reply) -> Result<Value, Unanswered> {
        let mut kernel = Kernel::start(reply);
        let switch = Switch::new(kernel.process.clone()).unwrap();
        let question = Question::Complete { code: "im".into(), cursor: 2 };
        let begun = Instant::now();
        let answer = ask(&mut kernel.client, &kernel.process, &switch, &question, BRIEF);
        assert!(begun.elapsed() < Duration::from_secs(30), "it took {:?}", begun.elapsed());
        answer
    }

    #[test]
    fn the_answer_to_this_very_question_is_given() {
        let fine = r#"{"status": "ok", "matches": ["import"]}"#;
        let answer = ask_one(Box::new(move |id| {
            vec![
                ("complete_reply", "another".into(), r#"{"status": "ok", "matches": ["wrong"]}"#.into()),
                ("inspect_reply", id.into(), r#"{"status": "ok", "found": true}"#.into()),
                ("complete_reply", id.into(), fine.into()),
                ("complete_reply", id.into(), r#"{"status": "ok", "matches": ["late"]}"#.into()),
            ]
        }));
        assert_eq!(answer.unwrap()["matches"], serde_json::json!(["import"]));
    }

    #[test]
    fn a_kernel_that_says_nothing_is_waited_for_a_moment_only() {
        for reply in [
            Box::new(|_: &str| Vec::new()) as Reply,
            Box::new(|_: &str| vec![("complete_reply", "another".into(), r#"{"status": "ok"}"#.into())]),
            Box::new(|id: &str| vec![("execute_reply", id.into(), r#"{"status": "ok"}"#.into())]),
        ] {
            let why = ask_one(reply).unwrap_err();
            assert_eq!(why, because("TimeoutError: the kernel gave no answer in time"));
        }
    }

    #[test]
    fn an_answer_that_is_none_is_no_answer() {
        for content in ["", "[", "null", "{\"status\": []}", &"[".repeat(1 << 20)] {
            let content = content.to_owned();
            let why = ask_one(Box::new(move |id| vec![("complete_reply", id.into(), content.clone())])).unwrap_err();
            assert_eq!(why, because("the kernel gave an answer that is none"));
        }
    }

    #[test]
    fn a_kernel_that_never_stops_talking_is_not_listened_to_for_ever() {
        let flood =
            |id: &str| vec![("stream", id.to_owned(), r#"{"name": "stdout", "text": "x"}"#.to_owned()); 100_000];
        let why = ask_one(Box::new(flood)).unwrap_err();
        assert_eq!(why, because("TimeoutError: the kernel gave no answer in time"));
    }

    #[test]
    fn a_kernel_that_breaks_the_protocol_is_ended() {
        let mut kernel = Kernel::start(Box::new(|_| vec![("\u{0}broken", String::new(), String::new())]));
        let switch = Switch::new(kernel.process.clone()).unwrap();
        let question = Question::IsComplete { code: "(".into() };
        let why = ask(&mut kernel.client, &kernel.process, &switch, &question, PATIENCE).unwrap_err();
        assert!(matches!(&why, Unanswered::Because(why) if why.starts_with("Crash: ")), "{why:?}");
        assert!(kernel.process.ends_before(Instant::now() + PATIENCE));
    }

    #[test]
    fn a_kernel_that_ends_gives_no_answer() {
        let mut kernel = Kernel::start(Box::new(|_| Vec::new()));
        let switch = Switch::new(kernel.process.clone()).unwrap();
        kernel.process.kill();
        let question = Question::IsComplete { code: "(".into() };
        let unanswered = ask(&mut kernel.client, &kernel.process, &switch, &question, PATIENCE);
        assert_eq!(unanswered, Err(Unanswered::Ended));
    }

    #[test]
    fn whoever_stops_the_kernel_ends_the_question() {
        use belljar_core::kernel::Interrupt as _;
        let mut kernel = Kernel::start(Box::new(|_| Vec::new()));
        let switch = Switch::new(kernel.process.clone()).unwrap();
        switch.stop();
        let question = Question::IsComplete { code: "(".into() };
        let unanswered = ask(&mut kernel.client, &kernel.process, &switch, &question, PATIENCE);
        assert_eq!(unanswered, Err(because(STOPPED)));
    }
}
