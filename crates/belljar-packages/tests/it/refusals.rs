//! Tests that a refusal is remembered: the request is refused again without asking the index.

use std::path::Path;
use std::time::SystemTime;

use belljar_packages::{GeneralHint as _, InstallError};

use crate::server::Server;
use crate::support::Fixture;

/// Resolves a name that the index of `server` does not have. Returns the text of the error.
fn refusal(cache: &Path, server: &Server, refreshed_since: Option<SystemTime>) -> String {
    let fixture = Fixture::with_cache(cache, |settings| {
        settings.index_url = Some(server.url());
        settings.refreshed_since = refreshed_since;
    });
    let error = fixture.resolve(&["belljar-made-nothing"]).unwrap_err();
    assert!(matches!(error, InstallError::UnknownPackage { .. }), "{error}");
    error.with_general_hint()
}

#[test]
fn name_that_the_index_lacks_is_asked_for_once() {
    let (cache, server) = (tempfile::tempdir().unwrap(), Server::start());
    let first = refusal(cache.path(), &server, None);
    let asked = server.requests().len();
    assert!(asked > 0);
    assert_eq!(refusal(cache.path(), &server, None), first);
    assert_eq!(server.requests().len(), asked);
    // A refusal applies to one index, and to its content at that time.
    let other = Server::start();
    refusal(cache.path(), &other, None);
    assert!(!other.requests().is_empty());
    refusal(cache.path(), &server, Some(SystemTime::now()));
    assert!(server.requests().len() > asked);
}

#[test]
fn failure_of_the_index_is_not_remembered() {
    let (cache, server) = (tempfile::tempdir().unwrap(), Server::start());
    let resolve = || {
        let fixture = Fixture::with_cache(cache.path(), |settings| settings.index_url = Some(server.url()));
        fixture.resolve(&["belljar-made-nothing"]).unwrap_err()
    };
    server.fail();
    let error = resolve();
    assert!(matches!(error, InstallError::Network { .. }), "{error}");
    let asked = server.requests().len();
    resolve();
    assert!(server.requests().len() > asked);
}
