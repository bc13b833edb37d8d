//! Sessions as dumps: a session is saved, and continues from a dump.

use std::sync::Arc;

use belljar_core::NoProgress;
use belljar_core::activity::trace::Trace;
use belljar_core::kernel::Backend;

use super::Session;
use crate::dump::{self, Dump, DumpKey, SavedState};
use crate::feed_record::FeedRecord;
use crate::link::Link;
use crate::proto::Event;

impl Session {
    /// Returns the session as bytes.
    pub(crate) fn dump(&mut self, key: &DumpKey) -> Result<Vec<u8>, String> {
        let snapshot = match &mut self.kernel {
            Some(kernel) => Some(kernel.snapshot().map_err(|error| format!("failed to save the session: {error}"))?),
            None => None,
        };
        let questions = self.suspended.as_ref().map(|observer| observer.save()).transpose();
        let questions = questions.map_err(|error| error.to_string())?;
        let (_, times) = self.stamps();
        let state = SavedState {
            settings: self.settings.clone(),
            feeds: self.feeds,
            next_call: self.next_call,
            times,
            code: self.suspended.is_some().then(|| self.code.clone()),
            questions: None,
        };
        let mut state = serde_json::to_value(state).map_err(|error| error.to_string())?;
        if let (Some(fields), Some(questions)) = (state.as_object_mut(), questions) {
            fields.insert("questions".into(), questions);
        }
        dump::to_bytes(key, state, snapshot.as_ref())
    }

    /// Creates a session that continues from a dump, with the records of its feeds. Returns it with the event that asks
    /// again what its parent, who has sent `trace`, has to answer.
    ///
    /// # Errors
    /// Returns the reason why the session cannot be restored.
    pub(crate) fn restore(
        link: Arc<Link>,
        backend: Arc<dyn Backend>,
        Dump { state, snapshot }: Dump,
        record: FeedRecord,
        trace: &Trace,
    ) -> Result<(Self, Option<Event>), String> {
        let SavedState { settings, feeds, next_call, times, code, questions } = state;
        let mut session = Self::new(link, backend, settings);
        (session.feeds, session.next_call, session.times) = (feeds, next_call, times);
        (session.code, session.record) = (code.unwrap_or_default(), record);
        let failed = |error: belljar_core::kernel::KernelError| format!("failed to restore the session: {error}");
        if let Some(snapshot) = &snapshot {
            let kernel = session.backend.restore(snapshot, &|| None, None, &NoProgress).map_err(failed)?;
            session.kernel = Some(kernel);
        }
        let Some(questions) = questions else { return Ok((session, None)) };
        let observer = Arc::new(session.observer(questions));
        let waker = session.waker();
        session.record.resume(&session.code, trace, &*session.backend);
        let recorded = session.record.observe(observer.clone());
        let Some(kernel) = &mut session.kernel else { return Err("a suspended session has no memory".into()) };
        observer.attach(kernel.reattach(recorded, waker).map_err(failed)?);
        let event = observer.questions().pending_event().ok_or("a suspended session waits for nothing")?;
        session.suspend(observer);
        Ok((session, Some(event)))
    }
}
