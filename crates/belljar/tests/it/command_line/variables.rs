//! Options that the environment sets: they may be set for good, so that they must not stand in the way of what they do not concern.

use crate::harness::Belljar;

#[test]
fn offline_work_is_asked_for_in_the_words_that_people_use() {
    let install = ["run", "--deps", "belljar-has-no-such-package-anywhere", "-c", "1"];
    for (value, is_offline) in [
        ("1", true),
        ("yes", true),
        ("true", true),
        ("on", true),
        ("0", false),
        ("no", false),
        ("false", false),
        ("off", false),
        ("", false),
    ] {
        let run = Belljar::new().env("BELLJAR_OFFLINE", value).args(install).run();
        assert_eq!(run.status, Some(126), "{value}: {run:?}");
        assert_eq!(run.stderr.contains("Belljar is offline"), is_offline, "{value}: {run:?}");
    }
}

#[test]
fn variables_of_native_kernels_do_not_concern_servers_in_webassembly() {
    let example = ["example", "--toolset", "all", "--no-install"];
    let set = |belljar: Belljar| belljar.env("BELLJAR_VENV", "/nonexistent").env("BELLJAR_NATIVE", "/nonexistent");
    let run = set(Belljar::new().args(example)).run();
    assert!(run.status == Some(0) && run.stdout.contains("<status>success</status>"), "{run:?}");
}

#[test]
fn options_of_native_kernels_are_refused_by_name_in_webassembly() {
    for options in [&["--venv", "/nonexistent"][..], &["--allow-unsandboxed"]] {
        let name = options[0];
        for command in [&["stdio"][..], &["streamable-http", "--port", "0"], &["example"]] {
            let run = Belljar::without_cache().args(command).args(options).run();
            assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
            let wanted = format!("belljar: {name} is for native kernels\nhint: `--sandbox native`");
            assert!(run.stderr.contains(&wanted), "{run:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_environment_of_native_kernels_may_be_named_by_a_variable() {
    let nowhere = tempfile::tempdir().unwrap();
    let native = ["stdio", "--sandbox", "native"];
    let named = Belljar::without_cache().args(native).env("BELLJAR_VENV", "/nonexistent/environment").run();
    assert!(named.status == Some(2) && named.stderr.contains("/nonexistent/environment"), "{named:?}");
    let none = Belljar::without_cache().args(native).env("BELLJAR_NATIVE", nowhere.path()).run();
    assert!(none.status == Some(2) && none.stderr.contains("belljar native setup"), "{none:?}");
    // What is said on the command line comes before it.
    let said = Belljar::without_cache().args(native).arg("--native-dir").arg(nowhere.path());
    let said = said.env("BELLJAR_VENV", "/nonexistent/environment").run();
    assert!(said.status == Some(2) && !said.stderr.contains("/nonexistent"), "{said:?}");
}

#[test]
fn a_usage_line_does_not_demand_what_a_variable_sets() {
    let nowhere = tempfile::tempdir().unwrap();
    let told = |args: &[&str]| {
        let belljar = Belljar::with_cache(nowhere.path()).args(args).env("BELLJAR_MAX_SESSIONS", "5");
        let run = belljar.env("BELLJAR_OFFLINE", "1").run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        run.stderr
    };
    let config = told(&["config"]);
    assert!(config.contains("Usage: belljar config <CLIENT>\n"), "{config}");
    let half = told(&["streamable-http", "--tls-cert", "x"]);
    assert!(half.contains("--tls-key <FILE>"), "{half}");
    for name in ["--cache", "--offline", "--max-sessions"] {
        assert!(!half.contains(name), "{half}");
    }
    // What has to be given may be given by a variable.
    let listed = Belljar::without_cache().args(["sessions", "list"]).env("BELLJAR_DATA_DIR", nowhere.path()).run();
    assert_eq!((listed.status, listed.stdout.as_str()), (Some(0), ""), "{listed:?}");
}
