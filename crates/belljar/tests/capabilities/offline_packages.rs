//! Packages in a network namespace without any interface.

use crate::harness::Belljar;
use crate::wheels::Wheels;

belljar_testing::trials! {
    bundle_serves_a_program_without_network: [NetworkNamespace],
    cached_packages_need_no_network: [NetworkNamespace],
}

fn bundle_serves_a_program_without_network() {
    let (wheels, bundle) = (Wheels::with_dependency(), tempfile::tempdir().unwrap());
    let script = bundle.path().join("script.py");
    std::fs::write(&script, "import gamma; print(gamma.beta.name)").unwrap();
    let (script, bundle) = (script.to_str().unwrap(), bundle.path().join("wheels"));
    let bundle = bundle.to_str().unwrap();
    let options = ["packages", "download", bundle, script, "--find-links", wheels.path()];
    let run = Belljar::new().env("UV_NO_INDEX", "1").args(options).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    drop(wheels);
    let lock = std::fs::read_to_string(format!("{bundle}/pylock.toml")).unwrap();
    assert!(lock.contains("gamma-1.0-py3-none-any.whl") && lock.contains("sha256"), "{lock}");
    // The first run unpacks the wheels, so it must have the bundle alone.
    let run = Belljar::new().args(["run", "--offline", "--find-links", bundle, script]).without_network().run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "beta\n"), "{run:?}");
}

fn cached_packages_need_no_network() {
    let code = "import rich; print(rich.__name__)";
    let run = Belljar::run_with(["-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "rich\n"), "{run:?}");
    let run = Belljar::new().args(["run", "--offline", "-c", code]).without_network().run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "rich\n"), "{run:?}");
}
