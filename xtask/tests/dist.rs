//! The files of a release, made by the command and checked by the tools that read them.

use std::path::Path;
use std::process::Command;

use belljar_testing::install;

const MCPB: &[&str] = &["@anthropic-ai/mcpb@2.1.2"];

#[test]
fn release_is_accepted_by_the_tools_that_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let (program, out) = (directory.path().join("program"), directory.path().join("out"));
    std::fs::write(&program, "not a real program").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["dist", "--program"])
        .arg(format!("x86_64-unknown-linux-gnu={}", program.display()))
        .arg("--out")
        .arg(&out)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("SHA256SUMS (") && printed.contains("no WinGet manifest"), "{printed}");

    let checked = install::run(Command::new("sha256sum").args(["--check", "SHA256SUMS"]).current_dir(&out));
    let listed = out.read_dir().unwrap().count() - 1;
    assert_eq!(checked.lines().filter(|line| line.ends_with(": OK")).count(), listed, "{checked}");

    let named = |ending: &str| {
        let mut files = out.read_dir().unwrap().map(|file| file.unwrap().path());
        files.find(|path| path.to_str().unwrap().ends_with(ending)).unwrap()
    };
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dist-tools");
    let mcpb = install::npm(&tools, "mcpb", MCPB).join("@anthropic-ai/mcpb/dist/cli/cli.js");
    let unpacked = directory.path().join("unpacked");
    install::run(Command::new("node").arg(&mcpb).arg("unpack").arg(named(".mcpb")).arg(&unpacked));
    install::run(Command::new("node").arg(&mcpb).arg("validate").arg(unpacked.join("manifest.json")));
    assert_eq!(std::fs::read_to_string(unpacked.join("server/belljar")).unwrap(), "not a real program");
    let archive = named("linux-gnu.tar.gz");
    let names = install::run(Command::new("tar").arg("-tzf").arg(archive));
    assert!(names.lines().any(|name| name.ends_with("/belljar")), "{names}");
}
