//! Packaging metadata, checked by the tools that read it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::fetched::{hadolint, mcpb, registry_checker, schema_checker};
use super::http::{Listening, hello};
use crate::harness::Belljar;
use crate::wire::Wire;

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
    let readme = std::fs::read_to_string(packaging("../python/README.md")).unwrap();
    assert!(readme.contains(&format!("mcp-name: {}", entry["name"].as_str().unwrap())));
    let project = std::fs::read_to_string(packaging("../python/pyproject.toml")).unwrap();
    assert!(project.contains(&format!("name = {}", entry["packages"][0]["identifier"])), "{project}");
}

#[test]
fn packaging_files_offer_what_config_offers() {
    let run = Belljar::without_cache().args(["config", "claude-desktop"]).run();
    let config: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    let (manifest, entry) = (read("manifest.json"), read("server.json"));
    let arguments = &config["mcpServers"]["belljar"]["args"];
    assert_eq!(&manifest["server"]["mcp_config"]["args"], arguments);
    let flatten = |argument: &Value| [argument["name"].clone(), argument["value"].clone()];
    let registry = entry["packages"][0]["packageArguments"].as_array().unwrap().iter().flat_map(flatten);
    assert_eq!(&Value::from(registry.filter(|word| !word.is_null()).collect::<Vec<_>>()), arguments);

    let mut wire = Wire::start(arguments.as_array().unwrap()[1..].iter().map(|word| word.as_str().unwrap()));
    let tools = wire.ask("tools/list", json!({}));
    let names = |tools: &Value| {
        let names = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&manifest["tools"]), names(&tools["result"]["tools"]));
}

#[test]
fn packaging_files_claim_the_platforms_of_the_readme() {
    let readme = std::fs::read_to_string(packaging("../README.md")).unwrap();
    let screen = readme.lines().take(40).collect::<Vec<_>>().join(" ");
    assert!(screen.contains("Belljar runs on Linux on x86-64"), "{screen}");
    assert_eq!(read("manifest.json")["compatibility"]["platforms"], json!(["linux"]));
    let project = std::fs::read_to_string(packaging("../python/pyproject.toml")).unwrap();
    let systems = project.lines().filter(|line| line.contains("Operating System")).map(str::trim);
    assert_eq!(systems.collect::<Vec<_>>(), ["\"Operating System :: POSIX :: Linux\","]);
    let readme = std::fs::read_to_string(packaging("../python/README.md")).unwrap();
    assert!(readme.contains("runs on Linux on x86-64"), "{readme}");
}

/// Returns the words of an instruction of the Dockerfile.
fn words_of(instruction: &str) -> Vec<String> {
    let dockerfile = std::fs::read_to_string(packaging("../Dockerfile")).unwrap();
    let line = dockerfile.lines().find_map(|line| line.strip_prefix(instruction)).unwrap();
    serde_json::from_str(line.trim()).unwrap()
}

#[test]
fn containers_command_serves_clients_with_a_token() {
    assert_eq!(words_of("ENTRYPOINT"), ["belljar"]);
    let words = words_of("CMD");
    let run = Belljar::new().args(&words).run();
    assert!(run.status == Some(2) && run.stderr.contains("--auth-token-file"), "{run:?}");
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "secret\n").unwrap();
    let more = ["--auth-token-file", tokens.to_str().unwrap(), "--no-install"];
    let server = Listening::start(&words[0], words[1..].iter().map(String::as_str).chain(more));
    assert_eq!(server.post(&[("Authorization", "Bearer secret")], &hello()).0, 200);
    assert_eq!(server.post(&[], &hello()).0, 401);
}

#[test]
fn dockerfile_passes_the_linter() {
    let lint = |text: &str| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Dockerfile");
        std::fs::write(&path, text).unwrap();
        let output = Command::new(hadolint()).arg(&path).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let dockerfile = std::fs::read_to_string(packaging("../Dockerfile")).unwrap();
    let (good, text) = lint(&dockerfile);
    assert!(good, "{text}");
    for (right, wrong) in [
        ("FROM debian:bookworm-slim", "FROM debian"),
        ("ENTRYPOINT [\"belljar\"]", "ENTRYPOINT belljar"),
        ("COPY --from=build", "COPY --from=built"),
        ("WORKDIR /source", "WORKDIR"),
    ] {
        assert!(dockerfile.contains(right), "{right}");
        assert!(!lint(&dockerfile.replace(right, wrong)).0, "the linter takes {wrong}");
    }
}

#[test]
fn containers_context_has_what_the_build_reads() {
    let ignored = std::fs::read_to_string(packaging("../.dockerignore")).unwrap();
    let context = tempfile::tempdir().unwrap();
    for name in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        let copy = Command::new("cp").arg("-r").arg(packaging("..").join(name)).arg(context.path()).status().unwrap();
        assert!(copy.success(), "{name}");
    }
    // Fails if a manifest, or a file that one names, is missing.
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"])
        .current_dir(&context)
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
}

#[test]
fn compose_file_is_valid_and_starts_the_server() {
    let validate = |path: &Path| {
        let output =
            Command::new(schema_checker()).args(["--builtin-schema", "vendor.compose-spec"]).arg(path).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (good, text) = validate(&packaging("compose.yaml"));
    assert!(good, "{text}");
    let compose = std::fs::read_to_string(packaging("compose.yaml")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("compose.yaml");
    std::fs::write(&broken, compose.replace("cap_drop", "cap_dorp")).unwrap();
    assert!(!validate(&broken).0, "the checker takes anything");

    let command = compose.lines().find_map(|line| line.trim().strip_prefix("command: [")).unwrap();
    let words: Vec<&str> = command.trim_end_matches(']').split(", ").collect();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "secret\n").unwrap();
    let tokens = tokens.to_str().unwrap();
    let words: Vec<&str> =
        words.into_iter().map(|word| if word == "/run/secrets/tokens" { tokens } else { word }).collect();
    let server = Listening::start(words[0], words[1..].iter().copied().chain(["--no-install"]));
    assert_eq!(server.post(&[("Authorization", "Bearer secret")], &hello()).0, 200);
}
