//! The life cycle of sessions: creation, queueing, interrupts, restarts, forks and expiry.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{Backend, CellRequest, Kernel, NullObserver};
use belljar_core::{CellStatus, Limits, NoProgress, Output};
use belljar_python::install::PrepareOptions;
use belljar_python::{PythonRuntime, RuntimeLoader, WasmBackend};
use belljar_sessions::{
    Cluster, ClusterOptions, ClusterUrl, Durability, GuestThreadPool, ManualClock, Place, PoolLimits, SessionError,
    SessionId, SessionOptions, Sessions, Store, Variables,
};
use serde_json::json;

use super::{Session, fields, installer, run};
use crate::library::python;

/// Returns the server's backend, with the tests' cache.
pub(super) fn backend() -> Arc<dyn Backend> {
    let runtime =
        PythonRuntime { python: python().clone(), options: PrepareOptions::default(), installer: installer() };
    let limits = Limits { wall_time: Some(Duration::from_secs(240)), ..Limits::default() };
    Arc::new(WasmBackend::new(Arc::new(RuntimeLoader::from(runtime)), limits, false))
}

/// Returns sessions whose clock only the test advances.
pub(super) fn sessions(store: Option<Store>, options: SessionOptions) -> (Sessions, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let pool = Arc::new(GuestThreadPool::new(PoolLimits { max_running: 4, max_queued: 1000 }, |work| {
        belljar_python::on_guest_thread(work)
    }));
    (Sessions::with_clock(backend(), store, None, pool, options, clock.clone()), clock)
}

/// Returns the text of a cell's value.
pub(super) async fn value(sessions: &Sessions, id: &SessionId, code: &str) -> Result<String, SessionError> {
    let cell = CellRequest { code: code.into(), ..CellRequest::default() };
    let report = sessions.execute(id, cell, Arc::new(NullObserver)).await?;
    let text = report.outputs.iter().find_map(|output| match output {
        Output::ExecuteResult(bundle) => bundle["text/plain"].as_str().map(str::to_owned),
        _ => None,
    });
    Ok(text.unwrap_or_else(|| format!("{:?}", report.status)))
}

pub(super) fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn session_expires_after_the_idle_limit_only() {
    wait(async {
        for store in [None, Some(Store::temporary().unwrap())] {
            let (sessions, clock) =
                sessions(store, SessionOptions { sleep_after: Duration::MAX, ..SessionOptions::default() });
            let id = sessions.create().unwrap();
            assert_eq!(value(&sessions, &id, "x = 1; x").await.unwrap(), "1");
            for _ in 0..3 {
                clock.advance(Duration::from_secs(29 * 60));
                sessions.evict_idle().await;
                assert_eq!(value(&sessions, &id, "x").await.unwrap(), "1");
            }
            clock.advance(Duration::from_secs(30 * 60 + 1));
            // No sweep has run.
            let error = value(&sessions, &id, "x").await.unwrap_err().to_string();
            assert!(error.starts_with("SessionExpiredError") && error.contains("after 30 minutes of"), "{error}");
            assert_eq!(sessions.count(), (0, 0));
        }
    });
}

#[test]
fn sweep_removes_expired_sessions_and_their_files() {
    wait(async {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let options = SessionOptions { sleep_after: Duration::from_secs(60), ..SessionOptions::default() };
        let (sessions, clock) = sessions(Some(store), options);
        let (one, two) = (sessions.create().unwrap(), sessions.create().unwrap());
        value(&sessions, &one, "1").await.unwrap();
        clock.advance(Duration::from_secs(61));
        value(&sessions, &two, "2").await.unwrap();
        sessions.evict_idle().await;
        assert_eq!(sessions.count(), (1, 2), "one of them sleeps");
        clock.advance(Duration::from_secs(31 * 60));
        sessions.evict_idle().await;
        assert_eq!(sessions.count(), (0, 0));
        let left = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.filter(|name| name != "bases").count(), 0, "files are left");
    });
}

#[test]
fn sleeping_session_frees_memory_and_wakes_intact() {
    wait(async {
        let options = SessionOptions { sleep_after: Duration::from_secs(60), ..SessionOptions::default() };
        let (sessions, clock) = sessions(Some(Store::temporary().unwrap()), options);
        let id = sessions.create().unwrap();
        value(&sessions, &id, "import json, random\nrandom.seed(5)\nclass C: pass\nc = C(); c.x = [1]\nopen('f', 'w').write('file')\nopened = open('f')\nopened.read(2)").await.unwrap();
        for round in 0..3 {
            clock.advance(Duration::from_secs(61));
            sessions.evict_idle().await;
            assert_eq!(sessions.count(), (0, 1));
            let got =
                value(&sessions, &id, "c.x.append(1); (len(c.x), opened.read(), json.dumps(c.x), _)").await.unwrap();
            assert!(got.starts_with(&format!("({}, {}", round + 2, if round == 0 { "'le'" } else { "''" })), "{got}");
        }
        assert_eq!(sessions.list(&id).await.unwrap()[0].path, "f");
    });
}

#[test]
fn calls_to_a_session_are_ordered_and_the_queue_is_bounded() {
    wait(async {
        let (sessions, _) = sessions(None, SessionOptions { max_queued: 3, ..SessionOptions::default() });
        let id = sessions.create().unwrap();
        value(&sessions, &id, "seen = []").await.unwrap();
        let calls = (0..8).map(|n| {
            let (sessions, id) = (sessions.clone(), id.clone());
            async move {
                value(&sessions, &id, &format!("import time; time.sleep(0.05); seen.append({n}); len(seen)")).await
            }
        });
        let results = futures(calls.collect()).await;
        let refused = results.iter().filter(|result| matches!(result, Err(SessionError::Queue { .. }))).count();
        let ran = results.iter().filter(|result| result.is_ok()).count();
        assert!(refused >= 1 && ran + refused == 8, "{results:?}");
        let seen = value(&sessions, &id, "(seen == sorted(seen), len(seen))").await.unwrap();
        assert_eq!(seen, format!("(True, {ran})"));
    });
}

/// Runs futures concurrently, started in their order.
async fn futures<T: Send + 'static>(work: Vec<impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    let tasks: Vec<_> = work.into_iter().map(tokio::spawn).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

#[test]
fn abandoned_call_is_interrupted_and_the_session_continues() {
    wait(async {
        let (sessions, _) = sessions(None, SessionOptions::default());
        let id = sessions.create().unwrap();
        value(&sessions, &id, "x = 1").await.unwrap();
        let endless = value(&sessions, &id, "while True: pass");
        assert!(tokio::time::timeout(Duration::from_millis(300), endless).await.is_err());
        assert_eq!(value(&sessions, &id, "x").await.unwrap(), "1");
    });
}

#[test]
fn interpreter_crash_is_in_the_report() {
    wait(async {
        let (sessions, _) = sessions(None, SessionOptions::default());
        let id = sessions.create().unwrap();
        let cell = CellRequest { code: "import os; os._exit(1)".into(), ..CellRequest::default() };
        let report = sessions.execute(&id, cell, Arc::new(NullObserver)).await.unwrap();
        assert!(matches!(report.status, CellStatus::KernelDied(_)), "{report:?}");
    });
}

#[test]
fn session_of_a_cluster_stays_until_announced_calls_have_arrived() {
    wait(async {
        const HOUR: Duration = Duration::from_secs(3600);
        let cluster = Cluster::join(ClusterOptions {
            store: "memory:///announced".parse().unwrap(),
            coordinator: ClusterUrl::Store,
            variables: Variables::default(),
            address: "http://tests".to_owned(),
            durability: Durability::Store,
            session_timeout: HOUR,
            run_ttl: HOUR,
            max_wait: HOUR,
        });
        let store = Store::in_cluster(Arc::new(cluster.unwrap())).unwrap();
        let options = SessionOptions { sleep_after: Duration::from_secs(60), ..SessionOptions::default() };
        let (sessions, clock) = sessions(Some(store), options);
        let id = sessions.create().unwrap();
        assert_eq!(value(&sessions, &id, "x = 1; x").await.unwrap(), "1");
        for _ in 0..2 {
            assert_eq!(sessions.locate(&id).await.unwrap(), Place::Here);
        }
        for count in 0..2 {
            clock.advance(Duration::from_secs(61));
            sessions.evict_idle().await;
            let found = value(&sessions, &id, "x").await;
            assert!(found.as_deref().is_ok_and(|found| found == "1"), "after {count} calls: {found:?}");
        }
        clock.advance(Duration::from_secs(61));
        sessions.evict_idle().await;
        assert_eq!(sessions.count(), (0, 0));
        assert_eq!(sessions.locate(&id).await.unwrap(), Place::Here);
        assert_eq!(value(&sessions, &id, "x").await.unwrap(), "1");
    });
}

#[test]
fn interrupt_before_a_cell_or_after_it_keeps_variables() {
    let run = |kernel: &mut dyn Kernel, code: String| {
        kernel.execute(&CellRequest { code, ..CellRequest::default() }, Arc::new(NullObserver)).status
    };
    belljar_python::on_guest_thread(|| {
        let mut kernel = backend().start(None, &NoProgress).unwrap();
        assert_eq!(run(&mut *kernel, "x = 6".into()), CellStatus::Ok);
        // CPython looks for signals once in a while, so that each cell is interrupted at another place.
        for count in 0..200 {
            kernel.interrupt_handle().interrupt();
            match run(&mut *kernel, format!("for _ in range({count}): pass\nx * 7")) {
                CellStatus::Ok => {}
                CellStatus::Error(error) => assert_eq!(error.name, "KeyboardInterrupt", "{count}"),
                other => panic!("{count}: {other:?}"),
            }
        }
    })
    .unwrap();
}

#[test]
fn interrupting_keeps_variables_and_restarting_keeps_files() {
    let mut session = Session::start([]);
    let id = session.id.clone();
    session.run("x = 1\nopen('f.txt', 'w').write('f')");
    let idle = session.tool("interrupt_session", json!({}));
    assert_eq!(idle["message"], "Nothing was running");
    let call = json!({ "name": "execute_code", "arguments": { "session_id": id, "code": "print('begun')\nwhile True: pass" } });
    session.wire.follow_output();
    let asked = session.wire.send("tools/call", call);
    // The interrupt must not come before the cell has begun.
    session.wire.wait_for_output("begun");
    assert_eq!(session.tool("interrupt_session", json!({}))["message"], "The running code was interrupted");
    let answer = fields(&session.wire.answer(asked)["result"]);
    assert_eq!((&answer["error"], &answer["output"]), (&json!("KeyboardInterrupt"), &json!(["begun\n"])));
    assert_eq!(session.value("x"), "1");
    assert_eq!(session.tool("restart_session", json!({}))["success"], true);
    assert_eq!(
        session.value("('x' in globals(), open('f.txt').read(), In)"),
        "(False, 'f', ['', \"('x' in globals(), open('f.txt').read(), In)\"])"
    );
}

#[test]
fn forks_draw_other_random_numbers_and_names() {
    let mut session = Session::start([]);
    let draw = "import random, tempfile\n(random.random(), tempfile.mktemp())";
    session.run(draw);
    let mut drawn = Vec::new();
    for _ in 0..2 {
        let forked = session.tool("fork_session", json!({}))["session_id"].as_str().unwrap().to_owned();
        let there = run(&mut session.wire, &forked, draw);
        drawn.push(there["result"].as_str().unwrap().to_owned());
    }
    drawn.push(session.value(draw));
    let mut different = drawn.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 3, "{drawn:?}");
}

#[test]
fn threads_that_a_cell_started_run_before_it_ends() {
    let mut session = Session::start([]);
    let code = "import threading\nthreading.Thread(target=print, args=('threaded',)).start()\nprint('cell')";
    assert_eq!(session.output(code), "cell\nthreaded\n");
    let error = session.error("import queue\nqueue.Queue().get()");
    assert!(error.starts_with("RuntimeError: this waits for something that cannot happen"), "{error}");
}

#[test]
fn fork_is_independent_of_its_original() {
    let mut session = Session::start([]);
    session.run("x = [1]\nopen('f.txt', 'w').write('one')\ndef f(): return x");
    let forked = session.tool("fork_session", json!({}))["session_id"].as_str().unwrap().to_owned();
    session.run("x.append(2)\nopen('f.txt', 'w').write('two')");
    let there = run(&mut session.wire, &forked, "(f(), open('f.txt').read(), _i2[:7])");
    assert_eq!(there["result"], "([1], 'one', 'x = [1]')", "{there:#}");
    run(&mut session.wire, &forked, "x.append(3); y = 1");
    assert_eq!(session.value("(f(), open('f.txt').read(), 'y' in globals())"), "([1, 2], 'two', False)");
}
