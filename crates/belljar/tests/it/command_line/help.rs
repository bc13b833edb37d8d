//! Help, version and completions.

use crate::harness::Belljar;

#[test]
fn help_lists_commands_and_options() {
    let mut texts = String::new();
    for args in [&["--help"][..], &["run", "--help"], &["warmup", "--help"], &["completions", "--help"]] {
        // The cache's path would change the line breaks.
        let run = Belljar::without_cache().args(args).run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        texts += &format!("$ belljar {}\n{}\n", args.join(" "), run.stdout);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn without_arguments_help_comes_on_standard_error() {
    let run = Belljar::new().run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(2), ""));
    assert!(run.stderr.contains("Usage: belljar"), "{run:?}");
}

#[test]
fn version_is_printed() {
    let run = Belljar::new().arg("--version").run();
    assert_eq!(run.stdout, format!("belljar {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = Belljar::new().args(["completions", shell]).run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{shell}");
        assert!(run.stdout.contains("timeout"), "{shell}");
    }
    assert_eq!(Belljar::new().args(["completions", "nonsense"]).run().status, Some(2));
}

#[test]
fn warmup_prints_the_paths_of_its_files() {
    let run = Belljar::new().arg("warmup").run();
    assert_eq!((run.status, run.stdout.as_str()), (Some(0), ""));
    assert!(run.stderr.starts_with("ready: Python 3."), "{run:?}");
    let run = Belljar::new().args(["warmup", "--quiet"]).run();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}
