//! Tests of admissions: sums never exceed quotas, and each way in which a call can end gives back what it took.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use belljar_core::MeterScope;
use proptest::prelude::*;

use super::*;
use crate::parking::ParkedWork;
use crate::pool::{GuestThreadPool, Permit, PoolLimits, PoolLoad};

const TIMEOUT: Duration = Duration::from_secs(60);

fn tenants(quotas: &str) -> Tenants {
    Tenants::new(QuotaTable::parse(quotas).unwrap(), None)
}

fn pool(max_running: usize, tenants: &Tenants) -> Arc<GuestThreadPool> {
    let limits = PoolLimits { max_running, max_queued: 1000 };
    Arc::new(GuestThreadPool::with_tenants(limits, tenants.clone(), |work| {
        work();
        Ok(())
    }))
}

/// Returns the processor time of the current thread.
fn processor_time() -> Duration {
    belljar_core::os::thread_time()
}

#[track_caller]
fn wait_until_idle(pool: &GuestThreadPool) {
    let begin = std::time::Instant::now();
    while pool.load() != (PoolLoad { running: 0, queued: 0, held: 0 }) {
        assert!(begin.elapsed() < TIMEOUT, "{:?}", pool.load());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Asserts that an owner with `queue = 0` and one thread can have a call, which is all that it can have.
#[track_caller]
fn assert_free(pool: &GuestThreadPool, tenant: &Tenant) {
    let (call, job) = pool.admit(tenant).unwrap();
    assert_eq!(pool.admit(tenant).map(drop).unwrap_err().quota(), Some(QuotaKind::Queue));
    drop((call, job));
    drop(pool.admit(tenant).unwrap());
}

#[test]
fn place_is_given_back_however_a_call_ends() {
    let tenants = tenants("[default]\nruns = 1\nqueue = 0\n");
    let pool = pool(4, &tenants);
    let tenant = tenants.find(TenantKey::Owner("alice"));
    // The caller leaves before the work begins, or the work is dropped.
    let (call, job) = pool.admit(&tenant).unwrap();
    drop(call);
    assert!(!job.begin());
    assert_free(&pool, &tenant);
    let (call, job) = pool.admit(&tenant).unwrap();
    drop(job);
    assert!(call.expire().is_none());
    assert_free(&pool, &tenant);
    // The wait ends because it was too long.
    let (call, job) = pool.admit(&tenant).unwrap();
    assert!(matches!(call.expire(), Some(WorkRefusal::QueueTimeout { .. })));
    assert!(!job.begin());
    assert_free(&pool, &tenant);
    // The caller leaves, and the work goes on.
    let (call, job) = pool.admit(&tenant).unwrap();
    call.detach();
    assert!(job.begin());
    assert_free(&pool, &tenant);
    // The work panics.
    let (_call, job) = pool.admit(&tenant).unwrap();
    pool.submit_for(&tenant, move |_permit| {
        assert!(job.begin());
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .unwrap();
    wait_until_idle(&pool);
    assert_free(&pool, &tenant);
}

#[test]
fn code_that_waits_without_a_thread_does_not_run() {
    let tenants = tenants("[default]\nruns = 1\nqueue = 0\n");
    let pool = pool(4, &tenants);
    let tenant = tenants.find(TenantKey::Owner("alice"));
    let work = ParkedWork::new(pool.clone(), tenant.clone());
    let (sender, resumed) = mpsc::channel();
    let waiting = work.clone();
    pool.submit_for(&tenant, move |permit| {
        waiting.park(None, move |_permit: Permit| sender.send(()).unwrap());
        drop(permit);
    })
    .unwrap();
    wait_until_idle(&pool);
    assert_free(&pool, &tenant);
    work.waker().wake();
    resumed.recv_timeout(TIMEOUT).unwrap();
    wait_until_idle(&pool);
    assert_free(&pool, &tenant);
}

#[test]
fn jobs_of_one_owner_run_within_its_quota_and_others_meanwhile() {
    let tenants = tenants("[owner.\"a\"]\nruns = 2\n");
    tenants.replace_names([("token:1".to_owned(), "a".into())]);
    let pool = pool(8, &tenants);
    let (limited, other) = (tenants.find(TenantKey::Owner("token:1")), tenants.find(TenantKey::Connection(7)));
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(parking_lot::Mutex::new(gate));
    let (sender, began) = mpsc::channel();
    for name in ["limited"; 5].into_iter().chain(["other"; 3]) {
        let (gate, sender) = (gate.clone(), sender.clone());
        let tenant = if name == "other" { &other } else { &limited };
        pool.submit_for(tenant, move |_permit| {
            sender.send(name).unwrap();
            gate.lock().recv().unwrap();
        })
        .unwrap();
    }
    let mut first: Vec<&str> = (0..5).map(|_| began.recv_timeout(TIMEOUT).unwrap()).collect();
    first.sort_unstable();
    assert_eq!(first, ["limited", "limited", "other", "other", "other"]);
    assert_eq!((pool.load().running, pool.load().queued), (5, 3));
    (0..8).for_each(|_| release.send(()).unwrap());
    (0..3).for_each(|_| assert_eq!(began.recv_timeout(TIMEOUT), Ok("limited")));
    wait_until_idle(&pool);
}

#[test]
fn names_decide_which_quotas_apply() {
    let tenants = tenants("[default]\nruns = 1\n[owner.alice]\nruns = 2\n[owner.\"sub|1\"]\nruns = 3\n");
    tenants.replace_names([("token:1".to_owned(), "alice".into()), ("token:2".to_owned(), "alice".into())]);
    let runs = |key: TenantKey<'_>| tenants.find(key).quotas().runs;
    assert_eq!(runs(TenantKey::Owner("token:1")), Some(2));
    assert_eq!(tenants.find(TenantKey::Owner("token:1")), tenants.find(TenantKey::Owner("token:2")));
    assert_eq!(runs(TenantKey::Owner("token:3")), Some(1));
    assert_eq!(runs(TenantKey::Owner("oauth:https://issuer.example sub|1")), Some(3));
    // The subject of a token of OAuth and the name of a token are different owners, even if they are equal.
    let subject = tenants.find(TenantKey::Owner("oauth:https://issuer.example alice"));
    assert_eq!(subject.quotas().runs, Some(2));
    assert_ne!(subject, tenants.find(TenantKey::Owner("token:1")));
    tenants.replace_quotas(QuotaTable::default());
    assert_eq!(subject.quotas().runs, None);
}

#[test]
fn quotas_are_replaced_while_owners_are_found() {
    let tenants = tenants("[default]\nruns = 1\n");
    let (sender, ended) = mpsc::channel();
    let (finder, found) = (tenants.clone(), sender.clone());
    std::thread::spawn(move || {
        for number in 0..10_000 {
            finder.find(TenantKey::Connection(number));
        }
        found.send(()).unwrap();
    });
    let replacer = tenants.clone();
    std::thread::spawn(move || {
        for runs in 2..102 {
            replacer.replace_quotas(QuotaTable::parse(&format!("[default]\nruns = {runs}\n")).unwrap());
        }
        sender.send(()).unwrap();
    });
    for _ in 0..2 {
        ended.recv_timeout(TIMEOUT).unwrap();
    }
    for number in [0, 9_999] {
        assert_eq!(tenants.find(TenantKey::Connection(number)).quotas().runs, Some(101));
    }
}

#[test]
fn refusals_for_lack_of_memory_end_when_there_is_some() {
    let tenants = Tenants::default();
    let pool = pool(1, &tenants);
    let tenant = tenants.find(TenantKey::Local);
    tenants.set_load(LoadState::Shedding("test".into()));
    assert!(matches!(pool.admit(&tenant).map(drop), Err(WorkRefusal::Overloaded { .. })));
    tenants.set_load(LoadState::Tight);
    drop(pool.admit(&tenant).unwrap());
}

#[test]
fn meter_of_a_job_is_that_of_its_owner() {
    let tenants = tenants("[default]\nmemory = 1000\nnetwork = 10\nprocessor = 0.01\n");
    let pool = pool(1, &tenants);
    let tenant = tenants.find(TenantKey::Owner("alice"));
    let (sender, metered) = mpsc::channel();
    pool.submit_for(&tenant, move |_permit| {
        let meter = belljar_core::current_meter().unwrap();
        meter.add_network(11);
        sender.send(meter.grow_memory(900)).unwrap();
        // Processor time, of which a busy machine gives a thread less than the time that passes.
        let begin = processor_time();
        while processor_time() - begin < Duration::from_millis(60) {}
    })
    .unwrap();
    assert!(metered.recv_timeout(TIMEOUT).unwrap());
    wait_until_idle(&pool);
    assert!(belljar_core::current_meter().is_none());
    let _scope = MeterScope::enter(tenant.meter());
    let meter = belljar_core::current_meter().unwrap();
    assert!(!meter.grow_memory(101) && meter.grow_memory(100));
    assert!(meter.check_network().unwrap_err().contains("`network`"));
    // The processor time is added when the job has ended, a moment after its place is free.
    let begin = std::time::Instant::now();
    let refusal = loop {
        match pool.admit(&tenant) {
            Err(refusal) if refusal.quota() == Some(QuotaKind::Processor) => break refusal,
            _ => assert!(begin.elapsed() < TIMEOUT),
        }
    };
    assert!(refusal.retry_after().unwrap() > Duration::from_secs(1), "{refusal}");
}

/// An operation on an owner.
#[derive(Debug, Clone)]
enum Operation {
    Admit,
    /// Ends the wait of one of the calls, in one of five ways.
    End(prop::sample::Index, u8),
    Grow(u64),
    /// Frees one of the pieces of memory.
    Free(prop::sample::Index),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => Just(Operation::Admit),
        3 => (any::<prop::sample::Index>(), 0..5u8).prop_map(|(index, way)| Operation::End(index, way)),
        2 => (0..400u64).prop_map(Operation::Grow),
        1 => any::<prop::sample::Index>().prop_map(Operation::Free),
    ]
}

proptest! {
    #[test]
    fn sums_never_exceed_quotas(operations in prop::collection::vec(operation(), 1..200), queue in 0..5u64) {
        let tenants = tenants(&format!("[default]\nruns = 2\nqueue = {queue}\nmemory = 1000\n"));
        let tenant = tenants.find(TenantKey::Local);
        let meter = tenant.meter();
        let mut waiting: Vec<(CallTicket, JobTicket)> = Vec::new();
        let mut memory: Vec<u64> = Vec::new();
        let most = usize::try_from(queue).unwrap() + 2;
        for operation in operations {
            match operation {
                Operation::Admit => match tenants.admit(&tenant, 100) {
                    Ok(tickets) => waiting.push(tickets),
                    Err(refusal) => {
                        prop_assert_eq!(refusal.quota(), Some(QuotaKind::Queue));
                        prop_assert_eq!(waiting.len(), most);
                    }
                },
                Operation::End(index, way) if !waiting.is_empty() => {
                    let (call, job) = waiting.swap_remove(index.index(waiting.len()));
                    match way {
                        0 => drop((call, job)),
                        1 => prop_assert!(job.begin() && call.expire().is_none()),
                        2 => prop_assert!(call.expire().is_some() && !job.begin()),
                        3 => {
                            drop(call);
                            prop_assert!(!job.begin());
                        }
                        _ => {
                            call.detach();
                            prop_assert!(job.begin() && !job.begin());
                        }
                    }
                }
                Operation::Grow(bytes) => {
                    let fits = memory.iter().sum::<u64>() + bytes <= 1000;
                    prop_assert_eq!(meter.grow_memory(bytes), fits);
                    if fits {
                        memory.push(bytes);
                    }
                }
                Operation::Free(index) if !memory.is_empty() => {
                    meter.release_memory(memory.swap_remove(index.index(memory.len())));
                }
                Operation::End(..) | Operation::Free(_) => {}
            }
            prop_assert!(waiting.len() <= most);
        }
        drop(waiting);
        let all: Vec<_> = (0..most).map(|_| tenants.admit(&tenant, 100).unwrap()).collect();
        prop_assert!(tenants.admit(&tenant, 100).is_err());
        drop(all);
    }
}
