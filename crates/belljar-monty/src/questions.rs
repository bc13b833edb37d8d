//! The questions of one feed and their answers, as a state without effects.
//!
//! ```text
//!  the code awaits ──▶ queued ──▶ asked ──┬─ an answer ─▶ ready ──▶ sent when the code is continued
//!                                         └─ a future ──▶ futures ─▶ ready, when the parent has the result
//!  the code blocks ──▶ asked at once, on the thread of the code
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::events::{resolve, violation};
use crate::proto::{Event, Operation, RaisedException};
use crate::question::{Answer, Pending, Question};

/// The questions of a feed, which are part of a dump.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Questions {
    /// Those that the parent was not asked yet, with the numbers of the kernel's calls.
    queued: VecDeque<(u64, Question)>,
    /// The one that the parent has to answer.
    asked: Option<(u64, Question, Pending)>,
    /// The kernel's calls that wait for futures, by the futures' numbers.
    futures: BTreeMap<u32, u64>,
    /// The futures that the code has received and does not wait for yet.
    promised: BTreeSet<u32>,
    /// Answers that the code receives when it is continued.
    ready: Vec<(u64, Answer)>,
    /// The number of the next call.
    next: u32,
}

/// The next step of a feed that waits.
pub(crate) enum NextStep {
    /// The parent has to answer a question.
    Ask(Event),
    /// The code has answers.
    Continue,
    /// The parent has to supply results of futures with these numbers.
    Resolve(Vec<u32>),
    /// The code does not wait for the parent.
    Wait,
}

impl Questions {
    /// Creates the questions of a feed, whose calls are numbered from `next` on.
    pub(crate) fn numbered_from(next: u32) -> Self {
        Self { next, ..Self::default() }
    }

    /// Returns the number of the next call.
    pub(crate) fn next_call(&self) -> u32 {
        self.next
    }

    /// Adds a question that the code awaits, with the number of the kernel's call.
    pub(crate) fn queue(&mut self, id: u64, question: Question) {
        self.queued.push_back((id, question));
    }

    /// Adds the kernel's call that waits for a future. Returns false if the code has no such future.
    pub(crate) fn claim(&mut self, number: u32, id: u64) -> bool {
        let is_known = self.promised.remove(&number);
        if is_known {
            self.futures.insert(number, id);
        }
        is_known
    }

    /// Adds a future that the code has received.
    pub(crate) fn promise(&mut self, number: u32) {
        self.promised.insert(number);
    }

    /// Removes what belongs to a kernel's call for which the code does not wait any more.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.queued.retain(|(queued, _)| *queued != id);
        self.futures.retain(|_, future| *future != id);
        self.ready.retain(|(ready, _)| *ready != id);
    }

    /// Returns the event that asks a question, with a number of its own.
    pub(crate) fn event(&mut self, question: &Question) -> (Event, Pending) {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        // A parent that awaits one function cannot begin others meanwhile.
        let is_only = self.queued.is_empty() && self.futures.is_empty();
        let pending = match question {
            Question::Function(call) => Pending::Call { id, eager: call.allow_eager_await && is_only },
            Question::Os(call) => {
                let can_be_eager = matches!(call.call, Some(Operation::AsyncSleep(_)));
                Pending::Os { id, eager: call.allow_eager_await && can_be_eager && is_only }
            }
            Question::Name(_) | Question::Future(_) => Pending::Name,
        };
        (event_of(question, pending), pending)
    }

    /// Returns what has to happen before the code goes on. A question is the parent's from then on.
    pub(crate) fn next_step(&mut self) -> NextStep {
        if let Some((id, question)) = self.queued.pop_front() {
            let (event, pending) = self.event(&question);
            self.asked = Some((id, question, pending));
            return NextStep::Ask(event);
        }
        if !self.ready.is_empty() {
            return NextStep::Continue;
        }
        if !self.futures.is_empty() {
            return NextStep::Resolve(self.pending_futures());
        }
        NextStep::Wait
    }

    /// Returns the event of the question that the parent has to answer, or of the futures that it has to resolve.
    pub(crate) fn pending_event(&self) -> Option<Event> {
        match &self.asked {
            Some((_, question, pending)) => Some(event_of(question, *pending)),
            None if self.futures.is_empty() => None,
            None => Some(resolve(self.pending_futures())),
        }
    }

    /// Returns the question that the parent has to answer, if it is not about futures.
    pub(crate) fn pending(&self) -> Option<Pending> {
        self.asked.as_ref().map(|(_, _, pending)| *pending)
    }

    /// Returns the numbers of the futures that the code waits for.
    pub(crate) fn pending_futures(&self) -> Vec<u32> {
        self.futures.keys().copied().collect()
    }

    /// Adds the answer to the question that the parent was asked.
    pub(crate) fn add_answer(&mut self, answer: Answer) {
        let Some((id, question, _)) = self.asked.take() else { return };
        match answer {
            // Only the result is of interest: the code awaits it already.
            Answer::Future(number) if is_awaited(&question) => {
                self.futures.insert(number, id);
            }
            answer => {
                if let Answer::Future(number) = answer {
                    self.promise(number);
                }
                self.ready.push((id, answer));
            }
        }
    }

    /// Adds results of futures.
    pub(crate) fn add_results(&mut self, answers: Vec<(u32, Answer)>) {
        for (number, answer) in answers {
            if let Some(id) = self.futures.remove(&number) {
                self.ready.push((id, answer));
            }
        }
    }

    /// Answers everything that the code waits for by an exception that ends the feed.
    pub(crate) fn abort(&mut self, exception: &RaisedException) {
        let waiting = self.queued.drain(..).map(|(id, _)| id).chain(self.asked.take().map(|(id, ..)| id));
        let waiting = waiting.chain(std::mem::take(&mut self.futures).into_values());
        self.ready.extend(waiting.map(|id| (id, Answer::Abort(exception.clone()))));
    }

    /// Takes the answers that the code receives next.
    pub(crate) fn take_ready(&mut self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut self.ready)
    }
}

/// Returns whether the code awaits the result of a question's call, and not the call itself.
fn is_awaited(question: &Question) -> bool {
    match question {
        Question::Function(call) => call.allow_eager_await,
        Question::Os(call) => call.allow_eager_await,
        Question::Name(_) | Question::Future(_) => false,
    }
}

fn event_of(question: &Question, pending: Pending) -> Event {
    match (question.clone(), pending) {
        (Question::Function(mut call), Pending::Call { id, eager }) => {
            (call.call_id, call.allow_eager_await) = (id, eager);
            Event::FunctionCall(call)
        }
        (Question::Os(mut call), Pending::Os { id, eager }) => {
            (call.call_id, call.allow_eager_await) = (id, eager);
            Event::OsCall(call)
        }
        (Question::Name(lookup), _) => Event::NameLookup(lookup),
        _ => violation("internal error: a question has no event"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{FunctionCall, SleepCall};

    fn call(eager: bool) -> Question {
        Question::Function(FunctionCall {
            function_name: "f".into(),
            allow_eager_await: eager,
            ..FunctionCall::default()
        })
    }

    fn asked(questions: &mut Questions) -> Event {
        match questions.next_step() {
            NextStep::Ask(event) => event,
            _ => panic!("nothing is asked"),
        }
    }

    #[test]
    fn awaited_calls_become_futures_that_are_resolved_together() {
        let mut questions = Questions::numbered_from(5);
        questions.queue(1, call(true));
        questions.queue(2, call(true));
        let Event::FunctionCall(first) = asked(&mut questions) else { panic!("no call") };
        assert_eq!((first.call_id, first.allow_eager_await), (5, false));
        questions.add_answer(Answer::Future(5));
        // Nothing else is left to ask, but the parent has a future to await.
        let Event::FunctionCall(second) = asked(&mut questions) else { panic!("no call") };
        assert_eq!((second.call_id, second.allow_eager_await), (6, false));
        questions.add_answer(Answer::Future(6));
        assert!(matches!(questions.next_step(), NextStep::Resolve(pending) if pending == [5, 6]));
        questions.add_results(vec![(6, Answer::NotFound("g".into()))]);
        assert!(matches!(questions.next_step(), NextStep::Continue));
        assert_eq!(questions.take_ready(), [(2, Answer::NotFound("g".into()))]);
        questions.cancel(1);
        assert!(matches!(questions.next_step(), NextStep::Wait));
    }

    #[test]
    fn only_question_may_be_answered_eagerly() {
        let mut questions = Questions::default();
        questions.queue(1, call(true));
        assert!(matches!(asked(&mut questions), Event::FunctionCall(call) if call.allow_eager_await));
        let sleep = Operation::SystemSleep(SleepCall { seconds: 1.0 });
        let mut os = crate::proto::OsCall { call: Some(sleep), allow_eager_await: true, ..Default::default() };
        assert!(matches!(questions.event(&Question::Os(os.clone())).1, Pending::Os { eager: false, .. }));
        os.call = Some(Operation::AsyncSleep(SleepCall { seconds: 1.0 }));
        assert!(matches!(questions.event(&Question::Os(os)).1, Pending::Os { eager: true, .. }));
    }

    #[test]
    fn code_waits_only_for_futures_that_it_has_received() {
        let mut questions = Questions::default();
        assert!(!questions.claim(0, 1));
        questions.queue(1, call(false));
        asked(&mut questions);
        questions.add_answer(Answer::Future(0));
        assert_eq!(questions.take_ready(), [(1, Answer::Future(0))]);
        assert!(questions.claim(0, 2) && !questions.claim(0, 3));
    }

    #[test]
    fn saved_questions_are_asked_again() {
        let mut questions = Questions::default();
        questions.queue(7, call(true));
        let event = asked(&mut questions);
        let json = serde_json::to_string(&questions).unwrap();
        let restored: Questions = serde_json::from_str(&json).unwrap();
        assert_eq!(restored.pending_event(), Some(event));
    }

    #[test]
    fn abort_answers_everything() {
        let mut questions = Questions::default();
        for id in 1..=3 {
            questions.queue(id, call(true));
        }
        asked(&mut questions);
        questions.add_answer(Answer::Future(0));
        asked(&mut questions);
        questions.abort(&RaisedException::default());
        let ids: Vec<u64> = questions.take_ready().into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, [3, 2, 1]);
        assert!(matches!(questions.next_step(), NextStep::Wait));
    }
}
