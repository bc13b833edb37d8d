//! The use of a quota that is per time. It is pure: the time is an argument.

use std::time::{Duration, Instant};

/// An amount per time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) amount: f64,
    pub(crate) period: Duration,
}

impl Rate {
    fn per_second(self) -> f64 {
        self.amount / self.period.as_secs_f64()
    }
}

/// The amount that was used and has not been paid back by the time that has passed since.
///
/// A use is possible while less than the quota is outstanding. It may exceed the quota, since its amount is known only
/// afterwards: later uses wait for longer then, so that the average stays below the quota.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spending {
    outstanding: f64,
    at: Instant,
}

impl Spending {
    pub(crate) fn new(now: Instant) -> Self {
        Self { outstanding: 0.0, at: now }
    }

    /// Returns the outstanding amount.
    pub(crate) fn outstanding(&mut self, rate: Rate, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.outstanding = (self.outstanding - elapsed * rate.per_second()).max(0.0);
        self.at = self.at.max(now);
        self.outstanding
    }

    /// Adds a use.
    pub(crate) fn add(&mut self, amount: f64, rate: Rate, now: Instant) {
        self.outstanding = self.outstanding(rate, now) + amount;
    }

    /// Checks whether a use is possible.
    ///
    /// # Errors
    /// Returns the outstanding amount, and the time after which a use is possible; `None` if it never is.
    pub(crate) fn check(&mut self, rate: Rate, now: Instant) -> Result<(), (f64, Option<Duration>)> {
        let outstanding = self.outstanding(rate, now);
        if outstanding < rate.amount {
            return Ok(());
        }
        let seconds = (outstanding - rate.amount) / rate.per_second();
        // Whole seconds, so that a client that waits for so long finds something to use.
        let wait = Duration::try_from_secs_f64(seconds.floor() + 1.0).ok().filter(|_| rate.amount > 0.0);
        Err((outstanding, wait))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RATE: Rate = Rate { amount: 10.0, period: Duration::from_secs(60) };

    #[test]
    fn quota_is_free_again_after_the_stated_time() {
        let start = Instant::now();
        let mut spending = Spending::new(start);
        assert_eq!(spending.check(RATE, start), Ok(()));
        spending.add(40.0, RATE, start);
        let (outstanding, wait) = spending.check(RATE, start).unwrap_err();
        assert_eq!((outstanding, wait), (40.0, Some(Duration::from_secs(181))));
        assert!(spending.check(RATE, start + Duration::from_secs(179)).is_err());
        assert_eq!(spending.check(RATE, start + wait.unwrap()), Ok(()));
        assert_eq!(spending.outstanding(RATE, start + Duration::from_secs(1000)), 0.0);
    }

    #[test]
    fn quota_of_zero_is_never_free() {
        let rate = Rate { amount: 0.0, ..RATE };
        assert_eq!(Spending::new(Instant::now()).check(rate, Instant::now()), Err((0.0, None)));
    }

    proptest! {
        #[test]
        fn average_stays_below_the_quota(uses in prop::collection::vec((0.0..30.0f64, 0..20_000u64), 1..200)) {
            let start = Instant::now();
            let (mut spending, mut now, mut used, mut last) = (Spending::new(start), start, 0.0, 0.0f64);
            for (amount, pause) in uses {
                now += Duration::from_millis(pause);
                if spending.check(RATE, now).is_ok() {
                    spending.add(amount, RATE, now);
                    used += amount;
                    last = last.max(amount);
                }
                let allowed = RATE.amount + (now - start).as_secs_f64() * RATE.per_second() + last;
                prop_assert!(used <= allowed + 1e-6, "{used} of {allowed}");
            }
        }
    }
}
