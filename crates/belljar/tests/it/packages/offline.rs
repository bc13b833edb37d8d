//! Without a network: from a directory that `packages download` filled, and from the cache.

use super::Wheels;
use crate::harness::Belljar;

const CODE: &str = "import gamma; print(gamma.beta.name)";

fn wheels() -> Wheels {
    let wheels = Wheels::new().with("beta", "1.0", &[("beta.py", "name = 'beta'")]);
    super::make_wheel(wheels.0.path(), "gamma", "1.0", &["beta"], &[("gamma.py", "import beta")]);
    wheels
}

#[test]
fn a_bundle_serves_a_program_where_there_is_no_network() {
    let (wheels, bundle) = (wheels(), tempfile::tempdir().unwrap());
    let script = bundle.path().join("script.py");
    std::fs::write(&script, CODE).unwrap();
    let (script, bundle) = (script.to_str().unwrap(), bundle.path().join("wheels"));
    let bundle = bundle.to_str().unwrap();
    let options = ["packages", "download", bundle, script, "--find-links", wheels.path()];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(options).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    drop(wheels);
    let lock = std::fs::read_to_string(format!("{bundle}/pylock.toml")).unwrap();
    assert!(lock.contains("gamma-1.0-py3-none-any.whl") && lock.contains("sha256"), "{lock}");
    let belljar = || Belljar::new().args(["run", "--offline", "--find-links", bundle, script]);
    // What the first run makes of the wheels, it must make where there is nothing but the bundle.
    let run = belljar().without_network().unwrap_or_else(|| {
        eprintln!("SKIPPED the empty network namespace: this user cannot make one");
        belljar()
    });
    let run = run.run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "beta\n"), "{run:?}");
}

#[test]
fn what_is_in_the_cache_needs_no_network() {
    let code = "import rich; print(rich.__name__)";
    let run = Belljar::run_with(["-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "rich\n"), "{run:?}");
    let Some(belljar) = Belljar::new().args(["run", "--offline", "-c", code]).without_network() else {
        eprintln!("SKIPPED what_is_in_the_cache_needs_no_network: this user cannot make a network namespace");
        return;
    };
    let run = belljar.run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "rich\n"), "{run:?}");
}

#[test]
fn a_lock_names_every_file_with_its_hash() {
    let wheels = wheels();
    let options = ["packages", "lock", "--deps", "gamma", "--find-links", wheels.path()];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(options).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    for part in ["lock-version = \"1.0\"", "name = \"beta\"", "name = \"gamma\"", "sha256 = \""] {
        assert!(run.stdout.contains(part), "{run:?}");
    }
}

#[test]
fn offline_says_what_is_missing() {
    let options = ["run", "--offline", "--json", "-c", "import rich, a_package_that_is_nowhere"];
    let (json, status) = Belljar::new().args(options).json();
    assert_eq!((json["status"].as_str(), status), (Some("install-error"), Some(126)), "{json}");
    assert!(json["reason"].as_str().unwrap().contains("offline"), "{json}");
}
