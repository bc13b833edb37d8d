//! The credentials of a store.

use std::ffi::OsString;

use super::{Shared, open, value};
use crate::harness::Belljar;
use crate::serve::http::Listening;

/// Returns the value of a variable that is not valid Unicode.
#[cfg(unix)]
fn not_unicode() -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(b"\xff".to_vec())
}

/// Returns the value of a variable that is not valid Unicode.
#[cfg(windows)]
fn not_unicode() -> OsString {
    std::os::windows::ffi::OsStringExt::from_wide(&[0xd800])
}

#[test]
fn profile_of_the_aws_tools_has_the_credentials() {
    let shared = Shared::new();
    let pairs = shared.server.pairs();
    let variable = |name: &str| pairs.iter().find(|(found, _)| found == name).unwrap().1.clone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("credentials");
    let (key, secret) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"));
    let section =
        |name: &str, secret: &str| format!("[{name}]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n");
    std::fs::write(&path, [section("other", "wrong"), section("team", &secret)].concat()).unwrap();
    let with_profile = |name: &str| {
        let options = ["--toolset", "interpreter", "--store", "s3://bucket/tests"];
        let belljar = Belljar::new().args(["streamable-http-stateless", "--port", "0"]).args(options);
        let belljar = ["AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP", "AWS_REGION"]
            .into_iter()
            .fold(belljar, |belljar, name| belljar.env(name, variable(name)));
        let belljar = belljar.env("AWS_ACCESS_KEY_ID", "").env("AWS_CONFIG_FILE", directory.path().join("config"));
        belljar.env("AWS_SHARED_CREDENTIALS_FILE", &path).env("AWS_PROFILE", name)
    };
    // Variables of others may have any value.
    let replica = Listening::spawn(with_profile("team").env("OTHER", not_unicode()));
    let session = open(&replica, "x = 1");
    assert_eq!(value(&replica, &session, "x"), "1");

    for (profile, expected) in [("other", "credentials"), ("absent", "have no profile \"absent\"")] {
        let run = with_profile(profile).run();
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
}
