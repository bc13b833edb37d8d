//! Tests of the fair queue: examples, and properties of arbitrary sequences of operations.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const LIMITS: LaneLimits = LaneLimits { weight: 1, max_running: usize::MAX };

fn capacity(max_running: usize, owners: usize) -> Capacity {
    Capacity { max_running, owners, processors: 2 }
}

/// Runs jobs one after the other, and returns the lanes in the order of service.
fn serve(queue: &mut FairQueue<u32>, count: usize) -> Vec<LaneId> {
    let served = (0..count).map(|_| {
        let next = queue.pop(capacity(1, 2)).unwrap();
        queue.release(next.slot);
        next.slot.lane
    });
    served.collect()
}

#[test]
fn single_call_is_served_before_the_second_job_of_a_flood() {
    let mut queue = FairQueue::default();
    for job in 0..1000 {
        queue.push(1, LIMITS, Urgency::Fresh, job);
    }
    assert_eq!(serve(&mut queue, 10), [1; 10]);
    queue.push(2, LIMITS, Urgency::Fresh, 0);
    assert_eq!(serve(&mut queue, 2), [2, 1]);
    for job in 0..3 {
        queue.push(2, LIMITS, Urgency::Fresh, job);
    }
    assert_eq!(serve(&mut queue, 6).iter().filter(|lane| **lane == 2).count(), 3);
    assert_eq!(queue.waiting(), 1000 - 10 - 1 - 3);
}

#[test]
fn weights_are_shares() {
    let mut queue = FairQueue::default();
    for job in 0..1000 {
        queue.push(1, LIMITS, Urgency::Fresh, job);
        queue.push(2, LaneLimits { weight: 3, ..LIMITS }, Urgency::Fresh, job);
    }
    let served = serve(&mut queue, 400);
    let of_second = served.iter().filter(|lane| **lane == 2).count();
    assert!((299..=301).contains(&of_second), "{of_second}");
}

#[test]
fn lane_at_its_limit_delays_no_other_and_does_not_catch_up() {
    let mut queue = FairQueue::default();
    let limited = LaneLimits { max_running: 1, ..LIMITS };
    for job in 0..100 {
        queue.push(1, limited, Urgency::Fresh, job);
        queue.push(2, LIMITS, Urgency::Fresh, job);
    }
    let held = queue.pop(capacity(2, 2)).unwrap();
    assert_eq!(held.slot.lane, 1);
    for _ in 0..50 {
        let next = queue.pop(capacity(2, 2)).unwrap();
        assert_eq!(next.slot.lane, 2);
        queue.release(next.slot);
    }
    queue.release(held.slot);
    let served = serve(&mut queue, 20);
    let of_first = served.iter().filter(|lane| **lane == 1).count();
    assert!((10..=11).contains(&of_first), "{served:?}");
}

#[test]
fn control_work_is_not_delayed_by_the_limit_of_its_lane() {
    let mut queue = FairQueue::default();
    let limited = LaneLimits { max_running: 1, ..LIMITS };
    for job in 0..5 {
        queue.push(1, limited, Urgency::Fresh, job);
    }
    let running = queue.pop(capacity(4, 1)).unwrap();
    assert!(queue.pop(capacity(4, 1)).is_none());
    queue.push(1, limited, Urgency::Control, 100);
    queue.push(1, limited, Urgency::Resumed, 200);
    let control = queue.pop(capacity(4, 1)).unwrap();
    assert_eq!(control.job, 100);
    assert!(queue.pop(capacity(4, 1)).is_none());
    queue.release(control.slot);
    queue.release(running.slot);
    assert_eq!(queue.pop(capacity(4, 1)).unwrap().job, 200, "code that has begun goes first");
}

#[test]
fn one_of_several_owners_leaves_a_quarter_of_the_capacity() {
    let mut queue = FairQueue::default();
    for job in 0..100 {
        queue.push(1, LIMITS, Urgency::Fresh, job);
    }
    let mut of_first = std::iter::from_fn(|| queue.pop(capacity(16, 2))).collect::<Vec<_>>();
    assert_eq!(of_first.len(), 12);
    // Two processors and two owners: one who asks for more than one processor gives way with all jobs.
    assert!(of_first.iter().all(|job| job.slot.gives_way));
    queue.push(2, LIMITS, Urgency::Fresh, 0);
    let other = queue.pop(capacity(16, 2)).unwrap();
    assert!(other.slot.lane == 2 && !other.slot.gives_way);
    queue.push(2, LIMITS, Urgency::Control, 0);
    let control = queue.pop(capacity(16, 2)).unwrap();
    assert!(!control.slot.gives_way, "jobs that run no code of the owner never give way");
    queue.release(control.slot);
    // The first of them may still be about to give back its place.
    let [second, third] = [(); 2].map(|()| {
        queue.push(2, LIMITS, Urgency::Fresh, 0);
        queue.pop(capacity(16, 2)).unwrap().slot
    });
    assert_eq!([second.gives_way, third.gives_way], [false, true]);
    [second, third].into_iter().for_each(|slot| queue.release(slot));
    // Alone, it may have all.
    of_first.extend(std::iter::from_fn(|| queue.pop(capacity(16, 1))));
    assert_eq!(of_first.len(), 15);
    assert!(of_first[12..].iter().all(|job| !job.slot.gives_way));
}

/// An operation on the queue.
#[derive(Debug, Clone)]
enum Operation {
    Push(LaneId, Urgency),
    Pop,
    /// Ends one of the running jobs.
    Release(prop::sample::Index),
}

fn operation() -> impl Strategy<Value = Operation> {
    let urgency = prop_oneof![
        1 => Just(Urgency::Control),
        2 => Just(Urgency::Resumed),
        6 => Just(Urgency::Fresh)
    ];
    prop_oneof![
        4 => (0..5u64, urgency).prop_map(|(lane, urgency)| Operation::Push(lane, urgency)),
        3 => Just(Operation::Pop),
        3 => any::<prop::sample::Index>().prop_map(Operation::Release),
    ]
}

/// The settings of the lanes in the property tests.
fn limits_of(lane: LaneId) -> LaneLimits {
    LaneLimits {
        weight: [1, 1, 2, 5, 1][usize::try_from(lane).unwrap()],
        max_running: [1, 2, 3, 8, 1000][usize::try_from(lane).unwrap()],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn limits_hold_and_no_job_is_lost(operations in prop::collection::vec(operation(), 1..300), max_running in 1..9usize) {
        let capacity = capacity(max_running, 3);
        let mut queue = FairQueue::default();
        let mut running: Vec<Dispatched<u64>> = Vec::new();
        let mut pushed: HashMap<(LaneId, u8), Vec<u64>> = HashMap::new();
        let mut number = 0;
        for operation in operations {
            match operation {
                Operation::Push(lane, urgency) => {
                    number += 1;
                    pushed.entry((lane, urgency as u8)).or_default().push(number);
                    queue.push(lane, limits_of(lane), urgency, number);
                }
                Operation::Pop => running.extend(queue.pop(capacity)),
                Operation::Release(index) if !running.is_empty() => {
                    let ended = running.swap_remove(index.index(running.len()));
                    queue.release(ended.slot);
                }
                Operation::Release(_) => {}
            }
            prop_assert!(running.len() <= max_running);
            prop_assert_eq!(queue.running(), running.len());
            for lane in 0..5 {
                let counted = running.iter().filter(|job| job.slot.lane == lane && job.slot.is_counted).count();
                prop_assert!(counted <= limits_of(lane).max_running.min(capacity.max_per_lane()));
            }
        }
        // Everything is served in the end, and in the order of arrival among jobs of the same kind.
        for job in running.drain(..) {
            queue.release(job.slot);
        }
        let mut rest = Vec::new();
        while let Some(next) = queue.pop(capacity) {
            queue.release(next.slot);
            rest.push((next.slot.lane, next.job));
        }
        prop_assert_eq!(queue.waiting(), 0);
        prop_assert_eq!(queue.running(), 0);
        for jobs in pushed.values() {
            let order: Vec<u64> = rest.iter().map(|(_, job)| *job).filter(|job| jobs.contains(job)).collect();
            prop_assert!(order.is_sorted());
        }
    }

    #[test]
    fn no_owner_starves(backlogs in prop::collection::vec(1..40usize, 2..8), late in 0..60usize) {
        // One slot, lanes with backlogs, and a lane that gets a single job after `late` others were served.
        let mut queue = FairQueue::default();
        for (lane, backlog) in backlogs.iter().enumerate() {
            for job in 0..*backlog {
                queue.push(lane as u64, LIMITS, Urgency::Fresh, job);
            }
        }
        let total: usize = backlogs.iter().sum();
        let mut served = vec![0usize; backlogs.len()];
        for _ in 0..late.min(total) {
            let next = queue.pop(capacity(1, 9)).unwrap();
            queue.release(next.slot);
            served[usize::try_from(next.slot.lane).unwrap()] += 1;
            // Lanes that still have jobs are served equally often, give or take one.
            let busy = served.iter().zip(&backlogs).filter(|(served, backlog)| served < backlog).map(|(served, _)| *served);
            let busy: Vec<usize> = busy.collect();
            if let (Some(least), Some(most)) = (busy.iter().min(), served.iter().max()) {
                prop_assert!(most - least <= 1, "{:?} of {:?}", served, backlogs);
            }
        }
        queue.push(99, LIMITS, Urgency::Fresh, 0);
        let before = std::iter::from_fn(|| {
            let next = queue.pop(capacity(1, 9))?;
            queue.release(next.slot);
            (next.slot.lane != 99).then_some(())
        });
        // At most one job of each other owner comes first.
        prop_assert!(before.count() <= backlogs.len());
    }
}
