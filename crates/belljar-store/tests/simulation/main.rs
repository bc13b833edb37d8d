//! A deterministic simulation of the protocol: random schedules with pauses longer than a lease, crashes, lost answers
//! to writes that have happened, late and repeated requests, and clocks of different speeds.
//!
//! It drives the same pure functions as servers do, and checks at each step that one replica at a time executes a
//! session, that what it continues from has every acknowledged request, and at the end that none was executed twice and
//! that every session is served again after the failures have ended. `SEED=N` repeats one schedule.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod clients;
mod model_store;
mod replica;
mod tasks;
mod world;

use std::time::{Duration, Instant};

/// A deliberate defect, which the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The store ignores the condition of a write.
    UnconditionalWrites,
    /// A request is acknowledged when the state is written, before the record is.
    NoConfirmation,
    /// The names of blobs have the number of the commit only.
    BlobNamesWithoutEpoch,
    /// A lost answer counts as a failure.
    NoReadBack,
    /// A replica that cannot renew its lease goes on.
    NoSelfFencing,
    /// The end of a lease is determined by comparing dates.
    LeaseByWallClock,
    /// An activation deletes the unused blobs of all epochs.
    SweepOfAllEpochs,
}

impl Defect {
    /// Returns whether the defect concerns leases that replicas observe by themselves.
    pub(crate) fn needs_leases_of_replicas(self) -> bool {
        matches!(self, Self::LeaseByWallClock)
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) defect: Option<Defect>,
}

/// A generator of random numbers: SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns true with a probability in thousandths.
    pub(crate) fn chance(&mut self, thousandths: u64) -> bool {
        self.below(1000) < thousandths
    }
}

/// Runs the schedules of these seeds until the time is over. Returns the numbers of schedules, events and acknowledged
/// requests.
fn run_all(seeds: std::ops::Range<u64>, limit: Duration) -> (u64, u64, u64) {
    let (start, mut totals) = (Instant::now(), (0, 0, 0));
    for seed in seeds {
        let (events, acknowledged) =
            world::run(seed, Options::default()).unwrap_or_else(|violation| panic!("{violation}"));
        totals = (totals.0 + 1, totals.1 + events, totals.2 + acknowledged);
        if start.elapsed() > limit {
            break;
        }
    }
    totals
}

#[test]
fn no_schedule_loses_or_doubles_a_request() {
    if let Ok(seed) = std::env::var("SEED") {
        world::run(seed.parse().unwrap(), Options::default()).unwrap();
        return;
    }
    let (schedules, events, acknowledged) = run_all(0..u64::MAX, Duration::from_secs(20));
    println!("{schedules} schedules, {events} events, {acknowledged} acknowledged requests");
    assert!(acknowledged > schedules * 2, "{acknowledged} of {schedules}");
}

/// The number of schedules that `schedules_on_all_processors_lose_and_double_no_request` runs, unless the variable
/// `BELLJAR_SIMULATED_SCHEDULES` has another one.
const SCHEDULES: u64 = 5_000;

#[test]
fn schedules_on_all_processors_lose_and_double_no_request() {
    let wanted = std::env::var("BELLJAR_SIMULATED_SCHEDULES").map_or(SCHEDULES, |number| number.parse().unwrap());
    let start = Instant::now();
    let threads = std::thread::available_parallelism().unwrap().get() as u64;
    let part = wanted.div_ceil(threads);
    let parts: Vec<_> = (0..threads)
        .map(|part_number| {
            // Other seeds than those above.
            let first = (1 << 40) + part_number * part;
            std::thread::spawn(move || run_all(first..first + part, Duration::MAX))
        })
        .collect();
    let totals = parts
        .into_iter()
        .map(|part| part.join().unwrap())
        .fold((0, 0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1, sum.2 + part.2));
    println!("{totals:?} (schedules, events, acknowledged requests) in {:?}", start.elapsed());
    assert!(totals.0 >= wanted);
}

/// A thousand replicas, of which 200 crash or pause, serve two clients of each session, and 2 % of the requests are
/// late, lost or repeated. A commit has two requests; finding the owner, take-overs and the leases add to them.
#[test]
fn a_thousand_replicas_lose_and_double_no_request() {
    const REPLICAS: usize = 1000;
    const MINUTE: u64 = 60 * world::SECOND;
    let scale = world::Scale { replicas: REPLICAS, sessions: 10_000, failures: 200, heal: MINUTE, trouble: 20 };
    let report =
        world::run_scaled(Random::new(1), Options::default(), &scale).unwrap_or_else(|error| panic!("{error}"));
    // Without the start, at which all replicas obtain their leases at once.
    let seconds = &report.requests[5..60];
    let (mean, peak) = (seconds.iter().sum::<u64>() / seconds.len() as u64, seconds.iter().max().unwrap());
    println!(
        "{} acknowledged requests of 10,000 sessions; {mean} requests a second at the store, {peak} at most",
        report.acknowledged
    );
    assert!(report.acknowledged > 20_000, "{}", report.acknowledged);
    let total = mean * seconds.len() as u64;
    assert!(total < report.acknowledged * 15, "{total} requests for {} acknowledged ones", report.acknowledged);
    assert!(*peak < mean * 2, "{peak} requests a second, and {mean} on the average");
}

/// Checks that schedules with a defect have a violation that is described by one of these texts. One schedule may have
/// several violations, of which the first is found.
fn find(defect: Defect, descriptions: &[&str]) {
    let options = Options { defect: Some(defect) };
    let is_described = |violation: &String| descriptions.iter().any(|text| violation.contains(text));
    let found =
        (0..50_000).filter_map(|seed| world::run(seed, options).err()).any(|violation| is_described(&violation));
    assert!(found, "{defect:?} was not found");
}

#[test]
fn unconditional_writes_are_found() {
    find(Defect::UnconditionalWrites, &["two replicas execute"]);
}

#[test]
fn acknowledging_before_the_record_is_written_is_found() {
    find(Defect::NoConfirmation, &["without request", "has lost"]);
}

#[test]
fn names_of_blobs_without_an_epoch_are_found() {
    // A late write of an earlier owner, or of an attempt that failed, replaces the state of a later commit.
    find(Defect::BlobNamesWithoutEpoch, &["without request", "has lost", "twice"]);
}

#[test]
fn taking_a_lost_answer_for_a_failure_is_found() {
    find(Defect::NoReadBack, &["twice"]);
}

#[test]
fn replicas_that_do_not_stop_themselves_are_found() {
    find(Defect::NoSelfFencing, &["two replicas execute"]);
}

#[test]
fn leases_by_the_wall_clock_are_found() {
    find(Defect::LeaseByWallClock, &["two replicas execute"]);
}

#[test]
fn deleting_blobs_of_the_present_epoch_is_found() {
    find(Defect::SweepOfAllEpochs, &["missing"]);
}

#[test]
fn schedules_are_deterministic() {
    let run = |seed| world::run(seed, Options::default()).unwrap();
    assert_eq!((0..50).map(run).collect::<Vec<_>>(), (0..50).map(run).collect::<Vec<_>>());
}
