//! Tests of the pool: its limits, its errors, and panics of jobs.

use std::sync::mpsc;
use std::time::Duration;

use belljar_core::HoldingWait;

use super::*;

/// The time after which a test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates a pool of ordinary threads.
fn pool(max_running: usize, max_queued: usize) -> GuestThreadPool {
    GuestThreadPool::new(PoolLimits { max_running, max_queued }, |work| {
        work();
        Ok(())
    })
}

#[test]
fn job_is_refused_when_threads_and_queue_are_full() {
    let pool = pool(2, 1);
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (started, running) = mpsc::channel();
    let submit = || {
        let (gate, started) = (gate.clone(), started.clone());
        pool.submit(move |_permit| {
            started.send(()).unwrap();
            gate.lock().recv().unwrap();
        })
    };
    submit().unwrap();
    submit().unwrap();
    for _ in 0..2 {
        running.recv_timeout(TIMEOUT).unwrap();
    }
    submit().unwrap();
    assert_eq!(pool.load(), PoolLoad { running: 2, queued: 1, held: 0 });
    assert!(submit().unwrap_err().to_string().contains("busy"));
    for _ in 0..3 {
        release.send(()).unwrap();
    }
    running.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn error_names_the_threads_that_are_held_by_waits() {
    let pool = pool(2, 0).with_held_hint("use await");
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let (started, running) = mpsc::channel();
    for is_wait in [false, true] {
        let (gate, started) = (gate.clone(), started.clone());
        pool.submit(move |_permit| {
            let _wait = is_wait.then(HoldingWait::begin);
            started.send(()).unwrap();
            gate.lock().recv().unwrap();
        })
        .unwrap();
        if !is_wait {
            running.recv_timeout(TIMEOUT).unwrap();
            assert_eq!(pool.load().held, 0);
        }
    }
    running.recv_timeout(TIMEOUT).unwrap();
    assert_eq!(pool.load().held, 1);
    let error = "the server is busy: 2 pieces of code run, 1 of which hold their thread while they wait in synchronous \
                 code, and 0 wait for a thread; try again in a moment\nhint: use await";
    assert_eq!(pool.submit(|_permit| ()).unwrap_err().to_string(), error);
    release.send(()).unwrap();
    release.send(()).unwrap();
}

#[test]
fn panicking_job_leaves_its_thread_alive() {
    let pool = pool(1, 8);
    pool.submit(|_permit| std::panic::resume_unwind(Box::new("on purpose"))).unwrap();
    let (done, answer) = mpsc::channel();
    pool.submit(move |_permit| done.send(()).unwrap()).unwrap();
    answer.recv_timeout(TIMEOUT).unwrap();
}

#[test]
fn dropped_permit_admits_the_next_job() {
    let pool = pool(1, 0);
    let (left, seen) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    pool.submit(move |permit| {
        drop(permit);
        left.send(()).unwrap();
        gate.recv().unwrap();
    })
    .unwrap();
    seen.recv_timeout(TIMEOUT).unwrap();
    let (done, answer) = mpsc::channel();
    pool.submit(move |_permit| done.send(()).unwrap()).unwrap();
    assert!(pool.submit(|_permit| ()).is_err());
    release.send(()).unwrap();
    answer.recv_timeout(TIMEOUT).unwrap();
}
