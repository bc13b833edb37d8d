//! Attacks from the code: every way to reach what is not allowed, or to read a secret. Each is a program with a name.

use super::cases::check;
use crate::network_servers::{KEY, TOKEN, site};

/// Asserts that no connection came to a port that the policy does not allow, and that no server but the right one
/// received a secret.
fn assert_nothing_leaked() {
    for record in site().records() {
        assert!(record.get("canary").is_none(), "a connection that is not allowed: {record}");
        let text = record.to_string();
        let is_secure = record["port"] == site().port("https");
        let host = record["headers"]["host"].as_str().unwrap_or_default();
        for (value, name) in [(TOKEN, "api.example.com"), (KEY, "keys.example.com")] {
            // As in JSON.
            let value = serde_json::to_string(value).unwrap();
            let value = value.trim_matches('"');
            assert!(!text.contains(value) || is_secure && host.starts_with(name), "a secret for {name}: {record}");
        }
    }
}

#[test]
fn addresses_that_are_not_allowed_are_not_reached() {
    assert!(check("attack_addresses.py") >= 44);
    assert_nothing_leaked();
}

#[test]
fn requests_that_are_not_allowed_are_not_sent() {
    assert!(check("attack_requests.py") >= 33);
    assert_nothing_leaked();
}

#[test]
fn secrets_are_not_read() {
    assert!(check("attack_secrets.py") >= 33);
    assert_nothing_leaked();
}
