//! Tests of the bounds of the history: cells, memory, runs and absent sessions.

use belljar_core::mime::{DisplayData, DisplayEvent, MimeBundle};
use belljar_core::{CallCancellation, ConnectionRecord, Output};

use super::*;

fn id() -> SessionId {
    SessionId::random().unwrap()
}

#[test]
fn old_cells_are_forgotten() {
    let history = Arc::new(History::default());
    let id = id();
    for _ in 0..MAX_CELLS {
        drop(CellGuard::new(history.begin_cell(&id, None, "1", false)));
    }
    let found = history.find(&id).unwrap();
    assert_eq!(found.cells().len(), MAX_CELLS);
    drop(CellGuard::new(history.begin_cell(&id, None, "1", false)));
    let numbers: Vec<u64> = found.cells().iter().map(|cell| cell.number).collect();
    assert_eq!((numbers.len(), numbers.last()), (MAX_CELLS, Some(&(MAX_CELLS as u64 + 1))));
    assert!(numbers.is_sorted() && numbers.first() == Some(&2), "{numbers:?}");
    assert_eq!(found.last().0, MAX_CELLS as u64 + 1);
    let bytes = found.state.lock().bytes;
    assert_eq!((history.bytes.load(Ordering::Relaxed), bytes > 0), (bytes, true));
}

#[test]
fn memory_of_all_sessions_is_bounded() {
    let history = Arc::new(History::default());
    let code = "x".repeat(32 << 10);
    let cells = MAX_BYTES / code.len() + 1000;
    let mut last = None;
    for number in 0..cells {
        let id = id();
        drop(CellGuard::new(history.begin_cell(&id, None, &code, false)));
        if number + 1 == cells {
            last = Some(id);
        }
    }
    assert!(history.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
    let all: usize = history.all().iter().map(|session| session.state.lock().bytes).sum();
    assert_eq!(history.bytes.load(Ordering::Relaxed), all);
    assert_eq!(history.find(&last.unwrap()).unwrap().cells().len(), 1);
}

/// Returns a display whose HTML has this many bytes.
fn display(bytes: usize) -> DisplayEvent {
    let data = [("text/html".to_owned(), "x".repeat(bytes).into())].into();
    DisplayEvent::Display(DisplayData { data, ..DisplayData::default() })
}

#[test]
fn cells_that_run_are_counted_and_bounded() {
    let history = Arc::new(History::default());
    let cells: Vec<CellGuard> = (0..100).map(|_| CellGuard::new(history.begin_cell(&id(), None, "1", false))).collect();
    let event = display(1 << 20);
    for CellGuard(record) in &cells {
        record.begin();
        (0..6).for_each(|_| record.on_display(&event));
        assert!(record.counted_bytes() >= 6 << 20 || record.snapshot().omitted > 0);
        assert!(history.bytes.load(Ordering::Relaxed) <= MAX_BYTES);
    }
    assert!(history.bytes.load(Ordering::Relaxed) >= MAX_BYTES / 2);
    drop(cells);
    let all: usize = history.all().iter().map(|session| session.state.lock().bytes).sum();
    assert_eq!(history.bytes.load(Ordering::Relaxed), all);
}

/// Returns the changes that a follower has received and not read.
fn received(events: &mut broadcast::Receiver<SessionEvent>) -> Vec<SessionChange> {
    std::iter::from_fn(|| events.try_recv().ok()).map(|event| event.change).collect()
}

#[test]
fn changes_at_a_high_rate_are_sent_again_when_the_cell_was_read() {
    let history = Arc::new(History::default());
    let id = id();
    let CellGuard(record) = &CellGuard::new(history.begin_cell(&id, None, "1", false));
    record.begin();
    let mut events = history.find(&id).unwrap().subscribe();
    let data = |step: u32| -> MimeBundle { [("text/plain".to_owned(), format!("{step} %").into())].into() };
    let update = |step: u32| {
        DisplayEvent::Update(DisplayData { data: data(step), display_id: Some("bar".into()), ..DisplayData::default() })
    };
    let begin = std::time::Instant::now();
    (0..50_000).for_each(|step| record.on_display(&update(step)));
    // One more for each second without a reader.
    let sent = received(&mut events);
    assert!(sent.iter().all(|change| *change == SessionChange::Displayed) && !sent.is_empty(), "{sent:?}");
    assert!(sent.len() as u64 <= 2 + begin.elapsed().as_secs(), "{}", sent.len());
    assert_eq!(record.snapshot().outputs, [Output::Display(data(49_999))]);
    // A reader that requests the cell at each event misses nothing.
    for step in 0..3 {
        record.on_display(&update(step));
        assert_eq!(received(&mut events), [SessionChange::Displayed]);
        assert_eq!(record.snapshot().outputs, [Output::Display(data(step))]);
    }
    record.on_installed("tabulate 0.9.0");
    assert_eq!(received(&mut events), [SessionChange::Called]);
    assert_eq!(record.snapshot().installed, ["tabulate 0.9.0"]);
    record.on_connection(&ConnectionRecord::default());
    assert_eq!(received(&mut events), [SessionChange::Called]);
    assert_eq!(record.snapshot().connections.len(), 1);
}

#[test]
fn refused_cells_are_forgotten_while_an_earlier_one_waits() {
    let history = Arc::new(History::default());
    let id = id();
    let waiting = CellGuard::new(history.begin_cell(&id, None, "input()", false));
    for _ in 0..MAX_CELLS {
        drop(CellGuard::new(history.begin_cell(&id, None, "1", false)));
    }
    let cells = history.find(&id).unwrap().cells();
    assert_eq!((cells.len(), cells.first().map(|cell| cell.number)), (MAX_CELLS, Some(1)));
    drop(waiting);
}

#[test]
fn ended_runs_are_bounded_and_displace_no_sessions() {
    let history = Arc::new(History::default());
    let [ended, running] = [id(), id()];
    history.session(&ended, None);
    history.set_absent(&ended, AbsenceReason::Completed);
    let waiting = history.begin_run(running.clone(), None, "1", CallCancellation::default());
    for number in 0..=MAX_ENDED_RUNS {
        assert_eq!(history.all().len(), number + 2);
        let mut run = history.begin_run(id(), None, "1", CallCancellation::default());
        run.end(Err("refused".to_owned()).into());
        // The client has its answer before anything is forgotten.
        assert_eq!(history.all().len(), number + 3);
    }
    assert_eq!(history.all().len(), MAX_ENDED_RUNS + 2);
    assert!(history.find(&ended).is_some());
    assert!(history.find(&running).is_some_and(|found| found.stop() && found.absence().is_none()));
    drop(waiting);
    assert!(history.find(&running).is_some_and(|found| !found.stop()));
    let all: usize = history.all().iter().map(|session| session.state.lock().bytes).sum();
    assert_eq!(history.bytes.load(Ordering::Relaxed), all);
}

#[test]
fn only_the_last_absent_sessions_stay() {
    let history = Arc::new(History::default());
    let [running, returned, ended_twice] = [id(), id(), id()];
    history.session(&running, None);
    history.session(&returned, None);
    history.set_absent(&returned, AbsenceReason::Away);
    history.session(&ended_twice, None);
    history.set_absent(&ended_twice, AbsenceReason::Completed);
    for number in 0..MAX_ABSENT {
        if number == 100 {
            history.set_present(&returned);
            // An end is the last thing that is noted.
            history.set_absent(&ended_twice, AbsenceReason::Away);
            assert_eq!(
                history.find(&ended_twice).and_then(|found| found.absence()).map(|absence| absence.reason),
                Some(AbsenceReason::Completed)
            );
        }
        let id = id();
        let reason = if number % 2 == 0 { AbsenceReason::Completed } else { AbsenceReason::Away };
        drop(CellGuard::new(history.begin_cell(&id, None, "1", false)));
        history.set_absent(&id, reason);
    }
    assert_eq!(history.all().len(), MAX_ABSENT + 2);
    assert!(history.find(&running).is_some() && history.find(&ended_twice).is_none());
    assert!(history.find(&returned).is_some_and(|found| found.absence().is_none()));
    assert_eq!(history.known.lock().absent.len(), MAX_ABSENT);
    let all: usize = history.all().iter().map(|session| session.state.lock().bytes).sum();
    assert_eq!(history.bytes.load(Ordering::Relaxed), all);
}
