//! Short help and manual pages, which are made from the definition of the command line.

use std::collections::BTreeSet;

use crate::harness::{Belljar, names_in};

const MAX_LINES: usize = 40;
const MAX_COLUMNS: usize = 100;

/// Returns the help of a command.
fn help(command: &[String], option: &str) -> String {
    let run = Belljar::without_cache().args(command).arg(option).run();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{command:?}");
    run.stdout
}

/// Returns the names of the commands that a command's help lists.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Descriptions that need several lines are indented further.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Returns all commands, `belljar` itself first.
fn commands() -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut next = 0;
    while let Some(command) = commands.get(next).cloned() {
        let children = subcommands(&help(&command, "-h"));
        commands.extend(children.into_iter().map(|name| [command.clone(), vec![name]].concat()));
        next += 1;
    }
    commands
}

#[test]
fn short_help_of_every_command_fits_on_a_screen() {
    let commands = commands();
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands {
        let short = help(&command, "-h");
        let columns = short.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(short.lines().count() <= MAX_LINES, "{command:?}: {} lines\n{short}", short.lines().count());
        assert!(columns <= MAX_COLUMNS, "{command:?}: {columns} columns\n{short}");
        assert!(help(&command, "--help").lines().count() >= short.lines().count(), "{command:?}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("man1");
    let run = Belljar::without_cache().args(["man", "--out"]).arg(&out).run();
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
    let page =
        |command: &Vec<String>| format!("{}.1", [&["belljar".to_owned()], command.as_slice()].concat().join("-"));
    let wanted: BTreeSet<String> = commands().iter().map(page).collect();
    assert_eq!(names_in(&out).into_iter().collect::<BTreeSet<_>>(), wanted);
    let written = std::fs::read_to_string(out.join("belljar-packages-lock.1")).unwrap();
    let printed = Belljar::without_cache().args(["man", "packages", "lock"]).run();
    assert_eq!(printed.stdout, written);
    let run = std::fs::read_to_string(out.join("belljar-run.1")).unwrap();
    for part in [
        "\\-\\-timeout",
        "\\-\\-extra\\-index\\-url",
        ".SH LIMITS",
        "Print times and memory use",
        "a time limit was reached",
    ] {
        assert!(run.contains(part), "{part}: {run}");
    }
    let unknown = Belljar::without_cache().args(["man", "packages", "nonsense"]).run();
    assert!(
        unknown.status == Some(2) && unknown.stderr.contains("`packages nonsense` is not a command"),
        "{unknown:?}"
    );
}
