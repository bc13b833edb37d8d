//! The workflows and the issue form, checked by the schemas that GitHub's files have.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use belljar_testing::install;

const CHECKER: &[&str] = &["check-jsonschema==0.39.0"];

/// Returns whether a text is valid, with the checker's output.
fn valid(schema: &str, text: &str) -> (bool, String) {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("github-tools");
    let checker = install::pip(&tools, "check-jsonschema", CHECKER).join("check-jsonschema");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.yml");
    std::fs::write(&path, text).unwrap();
    let output = Command::new(checker).args(["--builtin-schema", schema]).arg(path).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn workflows_and_issue_forms_are_valid() {
    let files = [
        ("workflows/test.yml", "vendor.github-workflows", "runs-on:", "run-on:"),
        ("workflows/release.yml", "vendor.github-workflows", "steps:", "step:"),
        ("ISSUE_TEMPLATE/platform-report.yml", "vendor.github-issue-forms", "type: dropdown", "type: menu"),
    ];
    for (name, schema, right, wrong) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let (good, printed) = valid(schema, &text);
        assert!(good, "{name}: {printed}");
        assert!(text.contains(right), "{name} lacks {right}");
        assert!(!valid(schema, &text.replace(right, wrong)).0, "the checker takes {wrong}");
    }
}
