//! Reads network policies as they come from files, command lines and clients. A policy that is accepted has a summary,
//! and narrowing never adds anything: what nothing allows stays empty, and a policy narrowed by itself is the same.

#![no_main]

use arbitrary::Arbitrary;
use belljar_network::Policy;
use libfuzzer_sys::fuzz_target;

/// An input of the fuzzer.
#[derive(Debug, Arbitrary)]
enum Input<'a> {
    /// The text of a file.
    Toml(&'a str),
    /// The policy of a call.
    Json(&'a str),
    /// The values of `--allow-net`.
    Patterns(Vec<&'a str>),
}

fn policy(input: &Input<'_>) -> Option<Policy> {
    match input {
        Input::Toml(text) => Policy::from_toml(text).ok(),
        Input::Json(text) => Policy::from_json(&serde_json::from_str(text).ok()?).ok(),
        Input::Patterns(patterns) => {
            let mut policy = Policy::none();
            for pattern in patterns.iter().take(20) {
                policy.allow(pattern).ok()?;
            }
            Some(policy)
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    let Some(policy) = policy(&input) else { return };
    let itself = policy.narrowed_by(&policy);
    assert_eq!(itself.is_empty(), policy.is_empty());
    assert!(policy.narrowed_by(&Policy::none()).is_empty());
    assert!(Policy::none().narrowed_by(&policy).is_empty());
    assert!(!policy.summary().contains('\u{1b}'), "{}", policy.summary());
});
