//! Tests of the questions of runs, between an answer and the call that receives it.

use std::sync::atomic::{AtomicU32, Ordering};

use belljar_core::kernel::InterruptHandle;

use super::*;

/// Counts what an interpreter receives.
#[derive(Default)]
struct Received {
    interrupts: AtomicU32,
    kills: AtomicU32,
}

impl Received {
    fn counts(&self) -> (u32, u32) {
        (self.interrupts.load(Ordering::Relaxed), self.kills.load(Ordering::Relaxed))
    }
}

impl InterruptHandle for Received {
    fn interrupt(&self) {
        self.interrupts.fetch_add(1, Ordering::Relaxed);
    }

    fn kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns a run that waits for the answer to question 1.
fn asking_run() -> Run {
    let id = RunId::random().unwrap();
    let (code, arguments) = (String::new(), Value::Null);
    let info = RunInfo { id, code, arguments, began: 0, is_new_session: false, is_program: false };
    let run = Run::new(info, SessionId::random().unwrap(), None, RunState::Asleep);
    run.restore_questions(&[Question { call: 1, message: "Allow it?".into() }]);
    run
}

/// Polls a question once, which receives its answer if it may.
fn poll(asking: std::pin::Pin<&mut impl Future<Output = (RunAnswer, Party)>>) -> Option<(RunAnswer, Party)> {
    match asking.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn run_is_not_suspended_while_its_call_has_not_received_an_answer() {
    let run = asking_run();
    let mut asking = std::pin::pin!(run.ask(1, String::new(), false));
    assert_eq!(poll(asking.as_mut()), None);
    run.answer(1, RunAnswer::Text("yes".into()), Party::Client).unwrap();
    assert!(run.has_answers() && !run.suspend(|| true));
    assert_eq!(poll(asking.as_mut()), Some((RunAnswer::Text("yes".into()), Party::Client)));
    assert!(!run.has_answers() && run.suspend(|| true));
}

#[tokio::test]
async fn run_is_not_suspended_while_a_question_is_not_saved() {
    let run = asking_run();
    let mut asking = std::pin::pin!(run.ask(2, "And this?".into(), false));
    assert_eq!(poll(asking.as_mut()), None);
    assert!(!run.suspend(|| true));
    run.show_questions();
    // Another one is asked meanwhile.
    let mut later = std::pin::pin!(run.ask(3, "And that?".into(), false));
    assert!(!run.suspend(|| poll(later.as_mut()).is_none()));
    run.show_questions();
    assert!(run.suspend(|| true));
}

#[tokio::test]
async fn answer_during_and_after_a_suspension_is_for_the_next_call() {
    let run = asking_run();
    {
        let mut asking = std::pin::pin!(run.ask(1, String::new(), false));
        assert_eq!(poll(asking.as_mut()), None);
        let during = || {
            run.answer(1, RunAnswer::Declined, Party::Operator).unwrap();
            assert_eq!(poll(asking.as_mut()), None);
            true
        };
        assert!(run.suspend(during));
        assert_eq!(poll(asking.as_mut()), None);
    }
    // The call that was ended has left the answer to the next one.
    let mut asking = std::pin::pin!(run.ask(1, String::new(), false));
    assert_eq!(poll(asking.as_mut()), Some((RunAnswer::Declined, Party::Operator)));
}

#[tokio::test]
async fn answer_is_received_after_a_suspension_that_did_not_happen() {
    let run = asking_run();
    let mut asking = std::pin::pin!(run.ask(1, String::new(), false));
    assert_eq!(poll(asking.as_mut()), None);
    assert!(!run.suspend(|| {
        run.answer(1, RunAnswer::Declined, Party::Operator).unwrap();
        false
    }));
    assert_eq!(poll(asking.as_mut()), Some((RunAnswer::Declined, Party::Operator)));
}

#[tokio::test]
async fn cancelled_call_withdraws_its_question_and_its_answer() {
    let run = asking_run();
    {
        let mut asking = std::pin::pin!(run.ask(1, String::new(), false));
        assert_eq!(poll(asking.as_mut()), None);
        run.answer(1, RunAnswer::Declined, Party::Operator).unwrap();
    }
    assert!(!run.has_answers() && !run.has_questions());
}

#[test]
fn interrupt_of_an_interpreter_that_is_dropped_reaches_the_next_one() {
    let interrupt = RunInterrupt::default();
    let [first, second, third] = [(); 3].map(|()| Arc::new(Received::default()));
    interrupt.attach(first.clone());
    interrupt.interrupt();
    interrupt.detach();
    interrupt.attach(second.clone());
    assert_eq!((first.counts(), second.counts()), ((1, 0), (1, 0)));
    // The run has gone on with it.
    assert!(interrupt.take() && !interrupt.take());
    interrupt.detach();
    interrupt.kill();
    interrupt.attach(third.clone());
    assert_eq!((second.counts(), third.counts()), ((1, 0), (0, 1)));
}
