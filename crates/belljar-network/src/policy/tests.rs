//! Tests of policies.

use super::*;

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn policy(patterns: &[&str]) -> Policy {
    let mut policy = Policy::none();
    for pattern in patterns {
        policy.allow(pattern).unwrap();
    }
    policy
}

fn decide(policy: &Policy, name: &str, method: &str, target: &str) -> Result<RequestDecision, String> {
    policy.decide(&host(name), 443, &RequestView { method, target, headers: &[] })
}

#[test]
fn nothing_is_allowed_unless_it_is_named() {
    assert!(Policy::none().is_empty());
    assert!(!Policy::none().allows(&host("a.example"), None));
    assert!(Policy::from_toml("").unwrap().is_empty());
    assert_eq!(Policy::none().summary(), "nothing");
    assert!(decide(&Policy::none(), "a.example", "GET", "/").is_err());
}

#[test]
fn private_addresses_are_reached_only_if_they_are_named() {
    let wide = policy(&["*", "0.0.0.0/0", "[::/0]", "db.example:5432", "10.0.0.0/8:5432", "127.0.0.1"]);
    assert!(wide.check_address(&host("db.example"), "10.1.1.1".parse().unwrap(), 5432).is_ok());
    assert!(wide.check_address(&host("db.example"), "10.1.1.1".parse().unwrap(), 443).is_err());
    assert!(wide.check_address(&host("db.example"), "127.0.0.1".parse().unwrap(), 443).is_ok());
    assert!(wide.check_address(&host("db.example"), "127.0.0.2".parse().unwrap(), 443).is_err());
    assert!(wide.check_address(&host("db.example"), "64:ff9b::10.1.1.1".parse().unwrap(), 5432).is_err());
    assert!(wide.check_address(&host("db.example"), "1.1.1.1".parse().unwrap(), 443).is_ok());
    assert!(wide.allows(&host("1.1.1.1"), Some(443)));
    assert!(wide.allows(&host("127.0.0.1"), Some(443)));
    assert!(!wide.allows(&host("127.0.0.2"), Some(443)));
    assert!(!wide.allows(&host("169.254.169.254"), Some(80)));
    assert!(!wide.allows(&host("::1"), Some(443)));
}

#[test]
fn denied_subnets_win() {
    let policy = Policy::from_toml(
        "allow = ['*', '8.8.8.8']\nsubnets = { deny = ['8.8.8.0/24'] }\nresolve = { 'a.example' = '8.8.8.8' }",
    )
    .unwrap();
    assert!(!policy.allows(&host("8.8.8.8"), Some(443)));
    assert!(policy.check_address(&host("a.example"), "8.8.8.8".parse().unwrap(), 443).is_err());
    assert!(policy.check_address(&host("a.example"), "64:ff9b::808:808".parse().unwrap(), 443).is_err());
    assert!(policy.check_address(&host("a.example"), "8.8.4.4".parse().unwrap(), 443).is_ok());
}

#[test]
fn entries_of_resolve_may_be_private() {
    let policy =
        Policy::from_toml("allow = ['db.example']\nresolve = { 'DB.example.' = ['10.0.0.5', 'fd00::5'] }").unwrap();
    assert_eq!(policy.resolved("db.example").len(), 2);
    assert!(policy.check_address(&host("db.example"), "10.0.0.5".parse().unwrap(), 443).is_ok());
    assert!(policy.check_address(&host("db.example"), "10.0.0.6".parse().unwrap(), 443).is_err());
}

#[test]
fn both_policies_have_to_allow() {
    let base =
        Policy::from_toml("allow = ['*.example.com', 'db.example']\nresolve = { 'db.example' = '10.0.0.5' }").unwrap();
    let other = Policy::from_toml(
        "allow = ['a.example.com', 'db.example', 'evil.example']\nresolve = { 'a.example.com' = '127.0.0.1' }",
    )
    .unwrap();
    let both = base.narrowed_by(&other);
    assert!(both.allows(&host("a.example.com"), Some(443)));
    assert!(both.allows(&host("db.example"), Some(443)));
    assert!(!both.allows(&host("b.example.com"), Some(443)));
    assert!(!both.allows(&host("evil.example"), Some(443)));
    assert!(both.resolved("a.example.com").is_empty());
    assert!(both.check_address(&host("a.example.com"), "127.0.0.1".parse().unwrap(), 443).is_err());
    assert!(both.check_address(&host("db.example"), "10.0.0.5".parse().unwrap(), 443).is_ok());
    assert!(base.narrowed_by(&Policy::none()).is_empty());
    assert!(base.narrowed_by(&Policy::none()).narrowed_by(&base).is_empty());
}

#[test]
fn the_first_rule_that_matches_applies() {
    let policy = Policy::from_toml(
        r#"
        [[allow."api.github.com"]]
        match = { method = "get", path = ["/repos/*", "/user"] }
        transform = { headers = { Authorization = "Bearer ${TOKEN}" } }
        [[allow."api.github.com"]]
        match = { method = ["GET", "POST"], path = "/gists" }
        [[allow."*.github.com"]]
        "#,
    )
    .unwrap();
    assert_eq!(decide(&policy, "api.github.com", "GET", "/repos/a/b").unwrap().transform.len(), 1);
    assert_eq!(decide(&policy, "api.github.com", "POST", "/gists").unwrap().rule, "api.github.com:443,80 rule 2");
    assert!(decide(&policy, "api.github.com", "DELETE", "/repos/a/b").is_err());
    assert_eq!(decide(&policy, "www.github.com", "DELETE", "/x").unwrap().rule, "*.github.com:443,80");
    assert!(policy.has_rules(&host("api.github.com"), 443));
    assert!(policy.transforms_secrets(&host("api.github.com"), 443));
    assert!(!policy.has_rules(&host("www.github.com"), 443));
}

#[test]
fn errors_name_the_key_and_the_keys_that_exist() {
    for (text, message) in [
        ("alow = []", "unknown key `alow` in the top level of the network policy; keys: allow, subnets, resolve"),
        (
            "[[allow.'a.b']]\nmach = {}",
            "unknown key `mach` in a rule of `allow.a.b` of the network policy; keys: match, transform",
        ),
        ("[allow.'a.b'.match]\nmethods = 'GET'", "keys: method, path, query, headers"),
        ("[allow.'a.b'.match]\nmethod = []", "invalid value of `allow.a.b.match.method`"),
        ("[allow.'a.b'.match]\npath = 'x'", "does not begin with `/`"),
        ("[allow.'a.b'.transform.headers]\nHost = 'x'", "the header Host cannot be set by a rule"),
        ("[allow.'a.b'.transform.headers]\nx = \"a\\r\\nb\"", "control characters"),
        ("allow = [1]", "it is not a text"),
        ("allow = ['a b']", "invalid host pattern `a b`"),
        ("resolve = { a = 'b' }", "`b` is not an address"),
        ("subnets = { deny = ['x'] }", "`x` is not a subnet"),
        ("allow = [", "failed to parse the network policy: TOML parse error at line 1"),
    ] {
        let error = Policy::from_toml(text).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn summaries_are_bounded() {
    assert_eq!(
        policy(&["api.github.com", "*.example.com:8443"]).summary(),
        "api.github.com:443,80, *.example.com:8443"
    );
    let mut long = Policy::none();
    for index in 0..1000 {
        long.allow(&format!("host-{index}.example.com")).unwrap();
    }
    assert!(long.summary().len() <= MAX_SUMMARY + 8);
}
