//! The value of a `Retry-After` header.

use std::time::{Duration, SystemTime};

/// Parses the value: a number of seconds, or a date, of which the time from now is returned.
pub(crate) fn parse(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::{Duration, SystemTime};

    #[test]
    fn seconds_and_dates_are_parsed() {
        assert_eq!(parse(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        let future = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1_000));
        assert!(parse(&future).is_some_and(|wait| wait > Duration::from_secs(900)), "{future}");
        for invalid in ["", "soon", "-1", "1.5"] {
            assert_eq!(parse(invalid), None, "{invalid}");
        }
    }
}
