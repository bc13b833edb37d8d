//! The lifetimes of sessions: the time without use, and the whole time, after which a session ends.

use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_sessions::{SessionId, Sessions};
use serde::Deserialize;
use tokio::time::Instant;

use super::end_session;
use super::error::ApiError;

/// The longest lifetime that a client can ask for. Without a wish, only the time without use ends a session.
const MAX_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

/// The lifetime of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// The time without use after which the session ends.
    pub(super) idle: Duration,
    /// The time since its creation after which the session ends, if the client named one.
    pub(super) max: Option<Duration>,
    /// The time without use after which every session ends.
    server_idle: Duration,
}

/// The body of `POST /sessions`.
#[derive(Debug, Default, Deserialize)]
struct CreateSession {
    idle_timeout_seconds: Option<NonZeroU64>,
    max_lifetime_seconds: Option<NonZeroU64>,
}

impl Lifetime {
    /// Returns the lifetime that a request asks for, within the limits of the server, whose sessions end after
    /// `server_idle` without use.
    pub(super) fn parse(body: &[u8], server_idle: Duration) -> Result<Self, ApiError> {
        let wanted: Option<CreateSession> = match body {
            [] => None,
            body => serde_json::from_slice(body).map_err(|error| ApiError::malformed(error.to_string()))?,
        };
        let CreateSession { idle_timeout_seconds, max_lifetime_seconds } = wanted.unwrap_or_default();
        let seconds = |wanted: NonZeroU64| Duration::from_secs(wanted.get());
        let idle = idle_timeout_seconds.map_or(server_idle, |wanted| seconds(wanted).min(server_idle));
        let max = max_lifetime_seconds.map(|wanted| seconds(wanted).min(MAX_LIFETIME));
        Ok(Self { idle, max, server_idle })
    }

    /// Ends the session when its lifetime is over, unless the server's own limit does.
    pub(super) fn watch(self, sessions: Sessions, id: SessionId) {
        if self.max.is_none() && self.idle == self.server_idle {
            return;
        }
        let end = self.max.map(|max| Instant::now() + max);
        tokio::spawn(async move {
            while let Some(unused) = sessions.idle_time(&id) {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if left.is_some_and(|left| left.is_zero()) {
                    if let Err(error) = end_session(&sessions, &id).await {
                        tracing::warn!(error = error.detail, "failed to end a session at the end of its lifetime");
                    }
                    return;
                }
                let idle_left = self.idle.saturating_sub(unused);
                if idle_left.is_zero() {
                    // Not interrupted: a call that has just arrived still has its result.
                    if let Err(error) = sessions.clear(&id).await {
                        tracing::debug!(%error, "failed to end an idle session");
                    }
                    return;
                }
                tokio::time::sleep(left.map_or(idle_left, |left| left.min(idle_left))).await;
            }
        });
    }
}

/// Returns the seconds since 1970.
pub(super) fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_HOUR: Duration = Duration::from_secs(1800);

    #[test]
    fn lifetimes_are_those_asked_for_within_the_servers_limits() {
        for (body, idle, max) in [
            ("", 1800, None),
            ("null", 1800, None),
            ("{}", 1800, None),
            (r#"{"idle_timeout_seconds": null, "max_lifetime_seconds": null, "other": 1}"#, 1800, None),
            (r#"{"idle_timeout_seconds": 300}"#, 300, None),
            (r#"{"idle_timeout_seconds": 3000, "max_lifetime_seconds": 60}"#, 1800, Some(60)),
            (r#"{"max_lifetime_seconds": 18446744073709551615}"#, 1800, Some(MAX_LIFETIME.as_secs())),
        ] {
            let lifetime = Lifetime::parse(body.as_bytes(), HALF_HOUR).unwrap();
            assert_eq!((lifetime.idle.as_secs(), lifetime.max.map(|max| max.as_secs())), (idle, max), "{body}");
        }
    }

    #[test]
    fn lifetimes_that_are_not_positive_integers_are_malformed() {
        for body in [
            "0",
            "[]",
            "{",
            r#"{"idle_timeout_seconds": 0}"#,
            r#"{"idle_timeout_seconds": -1}"#,
            r#"{"max_lifetime_seconds": 1.5}"#,
            r#"{"max_lifetime_seconds": "60"}"#,
        ] {
            let error = Lifetime::parse(body.as_bytes(), HALF_HOUR).unwrap_err();
            assert_eq!(error.status, axum::http::StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        }
    }
}
