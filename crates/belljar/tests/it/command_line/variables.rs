//! Options that environment variables set. Variables may be set permanently, so they must not affect commands that do
//! not use them.

use crate::harness::Belljar;

#[test]
fn offline_variable_accepts_common_boolean_words() {
    // The cache knows the answer of the index for names that were asked for in the last minutes, also offline.
    let name = format!("belljar-has-no-such-package-{}", std::process::id());
    let install = ["run", "--deps", &name, "-c", "1"];
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
fn wasm_servers_ignore_variables_of_native_kernels() {
    let example = ["example", "--toolset", "all", "--no-install"];
    let set = |belljar: Belljar| belljar.env("BELLJAR_VENV", "/nonexistent").env("BELLJAR_NATIVE", "/nonexistent");
    let run = set(Belljar::new().args(example)).run();
    assert!(run.status == Some(0) && run.stdout.contains("<status>success</status>"), "{run:?}");
}

#[test]
fn wasm_servers_refuse_options_of_native_kernels() {
    for options in [&["--venv", "/nonexistent"][..], &["--allow-unsandboxed"]] {
        let name = options[0];
        for command in [&["stdio"][..], &["streamable-http", "--port", "0"], &["example"]] {
            let run = Belljar::without_cache().args(command).args(options).run();
            assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
            let wanted =
                format!("belljar: {name} applies to native kernels only\nhint: select them with --sandbox native");
            assert!(run.stderr.contains(&wanted), "{run:?}");
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn native_environment_can_be_set_by_a_variable() {
    let nowhere = tempfile::tempdir().unwrap();
    let native = ["stdio", "--sandbox", "native"];
    let named = Belljar::without_cache().args(native).env("BELLJAR_VENV", "/nonexistent/environment").run();
    assert!(named.status == Some(2) && named.stderr.contains("/nonexistent/environment"), "{named:?}");
    let none = Belljar::without_cache().args(native).env("BELLJAR_NATIVE", nowhere.path()).run();
    assert!(none.status == Some(2) && none.stderr.contains("belljar native setup"), "{none:?}");
    // An option on the command line overrides the variable.
    let said = Belljar::without_cache().args(native).arg("--native-dir").arg(nowhere.path());
    let said = said.env("BELLJAR_VENV", "/nonexistent/environment").run();
    assert!(said.status == Some(2) && !said.stderr.contains("/nonexistent"), "{said:?}");
}

#[test]
fn usage_line_omits_options_that_variables_set() {
    let nowhere = tempfile::tempdir().unwrap();
    let error_of = |args: &[&str]| {
        let belljar = Belljar::with_cache(nowhere.path()).args(args).env("BELLJAR_MAX_SESSIONS", "5");
        let run = belljar.env("BELLJAR_OFFLINE", "1").run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        run.stderr
    };
    let config = error_of(&["config"]);
    assert!(config.contains("Usage: belljar config <CLIENT> [OPTION]...\n"), "{config}");
    let half = error_of(&["streamable-http", "--tls-cert", "x"]);
    assert!(half.contains("--tls-key <FILE>"), "{half}");
    for name in ["--cache", "--offline", "--max-sessions"] {
        assert!(!half.contains(name), "{half}");
    }
    // A variable can set a required option.
    let listed = Belljar::without_cache().args(["sessions", "list"]).env("BELLJAR_DATA_DIR", nowhere.path()).run();
    assert_eq!((listed.status, listed.stdout.as_str()), (Some(0), ""), "{listed:?}");
}
