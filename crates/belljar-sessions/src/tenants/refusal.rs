//! The reasons why the work of an owner is refused, though the server could do it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::quotas::QuotaKind;

/// The time after which a client may try again when the server has little memory.
const OVERLOAD_RETRY: Duration = Duration::from_secs(5);

/// The reason why work is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkRefusal {
    /// A quota of the owner is used up.
    #[error("{0}")]
    Quota(QuotaExceeded),
    /// The machine has little memory left.
    #[error("the server has little memory left ({reason}) and starts no new code; try again in a few seconds")]
    Overloaded {
        /// The measurement.
        reason: String,
    },
    /// The call waited for too long.
    #[error(
        "the call waited for {} s until its code could begin, which is the maximum (--queue-timeout); its code was not run",
        waited.as_secs()
    )]
    QueueTimeout {
        /// The time.
        waited: Duration,
    },
}

/// A quota that is used up.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaExceeded {
    /// The quota.
    pub kind: QuotaKind,
    /// The amount in use, in the quota's unit.
    pub used: f64,
    /// The quota.
    pub limit: f64,
    /// The time after which the quota is free again, if it is known.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, used, limit, retry_after } = self;
        let (name, subject) = (kind.name(), kind.subject());
        let (used, limit) = (kind.format(*used), kind.format(*limit));
        write!(formatter, "your quota `{name}` ({subject}) is used up: {used} of {limit}")?;
        match retry_after {
            Some(time) => write!(formatter, "; it is free again in {} s", time.as_secs().max(1)),
            None => write!(formatter, "; {}", self.remedy()),
        }
    }
}

impl QuotaExceeded {
    /// Returns what frees a quota that time alone does not free.
    fn remedy(&self) -> &'static str {
        match self.kind {
            // With no call that waits, one can still run.
            QuotaKind::Runs | QuotaKind::Sessions | QuotaKind::Storage if self.limit <= 0.0 => "it allows none",
            QuotaKind::Memory if self.used <= 0.0 => "it is less than an interpreter needs",
            QuotaKind::Runs | QuotaKind::Queue => "it is free again when one of your calls has ended",
            QuotaKind::Sessions => "it is free again when one of your sessions was cleared or has expired",
            QuotaKind::Memory => "it is free again when running code ends, or a session is cleared or sleeps",
            QuotaKind::Storage => "it is free again when a session was cleared or has expired",
            QuotaKind::Processor | QuotaKind::Network => "code cannot use any",
        }
    }
}

/// The details of a refusal, for structured results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RefusalDetails {
    /// `quota-exceeded`, `overloaded` or `queue-timeout`.
    pub status: &'static str,
    /// The name of the quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<&'static str>,
    /// The amount in use, in bytes, seconds or as a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<f64>,
    /// The quota, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// The seconds after which the call can succeed, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl WorkRefusal {
    /// Returns the time after which the work can be tried again, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Quota(exceeded) => exceeded.retry_after,
            Self::Overloaded { .. } => Some(OVERLOAD_RETRY),
            Self::QueueTimeout { .. } => None,
        }
    }

    /// Returns the quota that is used up, if that is the reason.
    pub fn quota(&self) -> Option<QuotaKind> {
        match self {
            Self::Quota(exceeded) => Some(exceeded.kind),
            Self::Overloaded { .. } | Self::QueueTimeout { .. } => None,
        }
    }

    /// Returns the details, for structured results.
    pub fn details(&self) -> RefusalDetails {
        let status = match self {
            Self::Quota(_) => "quota-exceeded",
            Self::Overloaded { .. } => "overloaded",
            Self::QueueTimeout { .. } => "queue-timeout",
        };
        let exceeded = match self {
            Self::Quota(exceeded) => Some(exceeded),
            Self::Overloaded { .. } | Self::QueueTimeout { .. } => None,
        };
        RefusalDetails {
            status,
            quota: exceeded.map(|exceeded| exceeded.kind.name()),
            used: exceeded.map(|exceeded| exceeded.used),
            limit: exceeded.map(|exceeded| exceeded.limit),
            retry_after: self.retry_after().map(|time| time.as_secs().max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_which_quota_how_much_and_when_it_frees() {
        let exceeded =
            |kind, used, limit, retry_after| WorkRefusal::Quota(QuotaExceeded { kind, used, limit, retry_after });
        let processor = exceeded(QuotaKind::Processor, 12.34, 10.0, Some(Duration::from_secs(15)));
        assert_eq!(
            processor.to_string(),
            "your quota `processor` (processor time per minute) is used up: 12.3 s of 10.0 s; it is free again in 15 s"
        );
        let details = serde_json::json!({
            "status": "quota-exceeded", "quota": "processor", "used": 12.34, "limit": 10.0, "retry_after": 15,
        });
        assert_eq!(serde_json::to_value(processor.details()).unwrap(), details);
        let sessions = exceeded(QuotaKind::Sessions, 3.0, 3.0, None);
        assert_eq!(
            sessions.to_string(),
            "your quota `sessions` (sessions) is used up: 3 of 3; it is free again when one of your sessions was cleared \
             or has expired"
        );
        let memory = exceeded(QuotaKind::Memory, f64::from(1 << 30), f64::from(1 << 29), None);
        assert!(memory.to_string().contains("1 GB of 512 MB"), "{memory}");
    }

    #[test]
    fn errors_promise_nothing_of_quotas_that_are_never_free() {
        let text = |kind, used, limit| QuotaExceeded { kind, used, limit, retry_after: None }.to_string();
        for (kind, used) in [(QuotaKind::Runs, 1.0), (QuotaKind::Sessions, 0.0), (QuotaKind::Storage, 0.0)] {
            let text = text(kind, used, 0.0);
            assert!(text.ends_with("; it allows none"), "{text}");
        }
        let memory = text(QuotaKind::Memory, 0.0, f64::from(10 << 20));
        assert!(memory.ends_with("0 bytes of 10 MB; it is less than an interpreter needs"), "{memory}");
        let queue = text(QuotaKind::Queue, 0.0, 0.0);
        assert!(queue.ends_with("; it is free again when one of your calls has ended"), "{queue}");
        for kind in [QuotaKind::Processor, QuotaKind::Network] {
            assert!(text(kind, 0.0, 0.0).ends_with("; code cannot use any"), "{kind}");
        }
    }
}
