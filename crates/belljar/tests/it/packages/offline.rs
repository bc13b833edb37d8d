//! Bundles and locks, and runs without the package index.

use crate::harness::Belljar;
use crate::wheels::Wheels;

#[test]
fn a_lock_names_every_file_with_its_hash() {
    let wheels = Wheels::with_dependency();
    let options = ["packages", "lock", "--deps", "gamma", "--find-links", wheels.path()];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(options).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    for part in ["lock-version = \"1.0\"", "name = \"beta\"", "name = \"gamma\"", "sha256 = \""] {
        assert!(run.stdout.contains(part), "{run:?}");
    }
}

#[test]
fn offline_error_names_missing_packages() {
    let options = ["run", "--offline", "--json", "-c", "import rich, a_package_that_is_nowhere"];
    let (json, status) = Belljar::new().args(options).json();
    assert_eq!((json["status"].as_str(), status), (Some("install-error"), Some(126)), "{json}");
    assert!(json["reason"].as_str().unwrap().contains("offline"), "{json}");
}
