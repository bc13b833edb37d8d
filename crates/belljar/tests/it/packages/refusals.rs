//! Packages that cannot be had: an outcome of its own, with words to act on.

use crate::harness::Belljar;

/// What `--json` says of a run that must not begin.
fn reason(options: &[&str], code: &str) -> String {
    let (json, status) = Belljar::new().args(["run", "--json"]).args(options).args(["-c", code]).json();
    assert_eq!((json["status"].as_str(), status), (Some("install-error"), Some(126)), "{code}: {json}");
    json["reason"].as_str().unwrap().to_owned()
}

#[test]
fn a_package_that_does_not_exist_is_named() {
    let reason = reason(&["--deps", "belljar-has-no-such-package-anywhere"], "1");
    assert!(reason.contains("belljar-has-no-such-package-anywhere"), "{reason}");
}

#[test]
fn a_module_that_no_package_provides_may_be_one_that_the_code_makes() {
    let code =
        "open('belljar_made_here.py', 'w').write('x = 6 * 7')\nimport belljar_made_here\nprint(belljar_made_here.x)";
    let run = Belljar::run_with(["-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), "42\n"), "{run:?}");
    // Where it does not, the code fails at its import and is told why.
    let run = Belljar::run_with(["-c", "print('begun')\nimport belljar_made_nowhere.part"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "begun\n"), "{run:?}");
    let error =
        "ModuleNotFoundError: No module named 'belljar_made_nowhere'\nbelljar-made-nowhere: there is no package";
    assert!(run.stderr.contains(error), "{run:?}");
}

#[test]
fn without_installing_imports_are_the_codes_own() {
    let code = "open('rich.py', 'w').write('x = 1')\nimport rich\nprint(rich.x)\nimport numpy";
    let run = Belljar::run_with(["--no-install", "-c", code]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), "1\n"), "{run:?}");
    assert!(
        run.stderr.contains("No module named 'numpy'\npackages are needed, and installing is switched off"),
        "{run:?}"
    );
}

#[test]
fn a_package_without_a_wheel_for_the_platform_says_so() {
    let reason = reason(&["--deps", "psycopg2"], "1");
    assert!(reason.contains("psycopg2") && reason.contains("wheel"), "{reason}");
}

#[test]
fn policies_hold_for_what_code_imports() {
    assert!(reason(&["--deny-packages", "rich"], "import rich").contains("`rich` is denied"));
    assert!(reason(&["--allow-packages", "pydantic*"], "import rich").contains("only pydantic* are allowed"));
    assert!(reason(&["--no-install", "--deps", "rich"], "1").contains("--no-install"));
}

#[test]
fn addresses_in_code_are_refused() {
    for dependency in ["rich @ https://192.0.2.1/rich.whl", "file:///tmp/x.whl", "git+https://192.0.2.1/x"] {
        let reason = reason(&[], &format!("# /// script\n# dependencies = [\"{dependency}\"]\n# ///\n"));
        assert!(reason.contains("is refused"), "{dependency}: {reason}");
    }
}

#[test]
fn without_json_the_words_are_on_standard_error_and_nothing_ran() {
    let run = Belljar::new().args(["run", "--no-install", "--deps", "rich", "-c", "print('begun')"]).run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(126), ""), "{run:?}");
    assert!(run.stderr.starts_with("belljar: ") && run.stderr.contains("\nhint: "), "{run:?}");
}

#[test]
fn options_that_make_no_sense_are_told_before_anything_is_done() {
    for (options, part) in [
        (["--deps", "rich @ https://192.0.2.1/x.whl"], "--deps"),
        (["--requirements", "/nowhere/requirements.txt"], "/nowhere/requirements.txt"),
    ] {
        let run = Belljar::new().args(["run"]).args(options).args(["-c", "print('begun')"]).run();
        assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(part), "{run:?}");
    }
}
