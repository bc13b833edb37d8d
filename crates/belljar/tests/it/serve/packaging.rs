//! Packaging metadata, checked by the tools that read it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::fetched::{mcpb, registry_checker};
use super::http::{Listening, hello};
use crate::harness::Belljar;

fn packaging(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(packaging(name)).unwrap()).unwrap()
}

/// Runs a checker on a file with this name and content.
fn check(name: &str, content: &Value, checker: impl FnOnce(&PathBuf) -> Command) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, content.to_string()).unwrap();
    let Output { status, stdout, stderr } = checker(&path).current_dir(&directory).output().unwrap();
    (status.success(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn the_bundles_manifest_is_valid() {
    let validate = |manifest: &Value| {
        check("manifest.json", manifest, |path| {
            let mut command = Command::new("node");
            command.arg(mcpb().join("@anthropic-ai/mcpb/dist/cli/cli.js")).arg("validate").arg(path);
            command
        })
    };
    let mut manifest = read("manifest.json");
    let (good, text) = validate(&manifest);
    assert!(good, "{text}");
    manifest["server"]["type"] = json!("nonsense");
    assert!(!validate(&manifest).0, "the validator takes anything");
}

#[test]
fn the_registrys_entry_is_valid() {
    let lint = |entry: &Value| {
        check("server.json", entry, |path| {
            let mut command = Command::new(registry_checker());
            command.arg("lint").arg(path.parent().unwrap());
            command
        })
    };
    let mut entry = read("server.json");
    let (good, text) = lint(&entry);
    assert!(good && text.contains("mcp-registry"), "{text}");
    entry["description"] = json!("x".repeat(101));
    assert!(!lint(&entry).0, "the checker takes anything");
}

#[test]
fn packaging_files_agree_on_version_and_name() {
    let version = env!("CARGO_PKG_VERSION");
    let (manifest, entry) = (read("manifest.json"), read("server.json"));
    assert_eq!([&manifest["version"], &entry["version"], &entry["packages"][0]["version"]], [version; 3]);
    let readme = std::fs::read_to_string(packaging("python/README.md")).unwrap();
    assert!(readme.contains(&format!("mcp-name: {}", entry["name"].as_str().unwrap())));
    let project = std::fs::read_to_string(packaging("python/pyproject.toml")).unwrap();
    assert!(project.contains(&format!("name = {}", entry["packages"][0]["identifier"])), "{project}");
}

#[test]
fn container_command_serves_clients_with_a_token() {
    let dockerfile = std::fs::read_to_string(packaging("../Dockerfile")).unwrap();
    let line = dockerfile.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    let words: Vec<String> = serde_json::from_str(line).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(words[0], "belljar");
    let run = Belljar::new().args(&words[1..]).run();
    assert!(run.status == Some(2) && run.stderr.contains("--auth-token-file"), "{run:?}");
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "secret\n").unwrap();
    let more = ["--auth-token-file", tokens.to_str().unwrap(), "--no-install"];
    let server = Listening::start(words[1], words[2..].iter().copied().chain(more));
    assert_eq!(server.post(&[("Authorization", "Bearer secret")], &hello()).0, 200);
    assert_eq!(server.post(&[], &hello()).0, 401);
}
