//! Whole releases, made from small files that take the places of programs, and from the real documents and metadata.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::*;

const LINUX: &str = "x86_64-unknown-linux-gnu";
const ARM: &str = "aarch64-unknown-linux-gnu";
const WINDOWS: &str = "x86_64-pc-windows-msvc";
const MAC: &str = "aarch64-apple-darwin";
const EPOCH: u64 = 1_700_000_000;

/// A file of an archive: its path, permissions and content.
type Unpacked = (String, u32, Vec<u8>);

fn release() -> Release {
    Release { epoch: EPOCH, ..Release::of_workspace(&workspace().unwrap()).unwrap() }
}

/// Returns Cargo's metadata for Linux, also for other systems, for which it would need their crates.
fn metadata() -> Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    let read = || sbom::metadata(&workspace().unwrap(), Platform::from_triple(LINUX).unwrap()).unwrap();
    METADATA.get_or_init(read).clone()
}

/// Makes a release of these platforms, and returns its files. The inputs are as old as `age`.
fn made(triples: &[&str], age: Duration) -> BTreeMap<String, Vec<u8>> {
    let release = release();
    let inputs = tempfile::tempdir().unwrap();
    let input = |name: &str, content: &str| {
        let path = inputs.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(SystemTime::now() - age).unwrap();
        path
    };
    let program = |triple: &&str| {
        let path = input(triple, &format!("the program for {triple}"));
        Program { platform: Platform::from_triple(triple).unwrap(), path }
    };
    let programs: Vec<Program> = triples.iter().map(program).collect();
    let packages = [
        input(&format!("belljar-{}-cp310-abi3-manylinux_2_28_x86_64.whl", release.version), "a wheel"),
        input(&format!("belljar-{}.tar.gz", release.version), "an sdist"),
    ];
    let out = tempfile::tempdir().unwrap();
    let mut output = Output::create(out.path()).unwrap();
    make(&release, &programs, &packages, &mut output, |_| Ok(metadata())).unwrap();
    let files = out.path().read_dir().unwrap().map(|file| file.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

/// Returns the one file whose name has this ending.
fn ending<'a>(files: &'a BTreeMap<String, Vec<u8>>, ending: &str) -> &'a [u8] {
    let mut found = files.iter().filter(|(name, _)| name.ends_with(ending));
    let (Some((_, content)), None) = (found.next(), found.next()) else {
        panic!("not one file ends in {ending}: {:?}", files.keys());
    };
    content
}

/// Returns the paths, permissions and contents in a compressed tar archive, whose files have no owner and this time.
fn untar(bytes: &[u8]) -> Vec<Unpacked> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (EPOCH, 0, 0));
        assert_eq!((header.username().unwrap(), header.groupname().unwrap()), (Some(""), Some("")));
        let (path, mode) = (entry.path().unwrap().to_str().unwrap().to_owned(), header.mode().unwrap());
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (path, mode, content)
    });
    entries.collect()
}

/// Returns the same of a ZIP archive, as Python's library reads it.
fn unzip(bytes: &[u8]) -> Vec<Unpacked> {
    const READER: &str = "\
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    files = [(i.filename, i.external_attr >> 16, list(i.date_time), archive.read(i).decode()) for i in archive.filelist]
print(json.dumps(files))";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("archive.zip");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new("python3").args(["-c", READER]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let files: Vec<(String, u32, [u32; 6], String)> = serde_json::from_slice(&output.stdout).unwrap();
    let files = files.into_iter().map(|(path, mode, time, content)| {
        // DOS has even seconds.
        assert_eq!(time, [2023, 11, 14, 22, 13, 20]);
        (path, mode, content.into_bytes())
    });
    files.collect()
}

fn paths(entries: &[Unpacked]) -> Vec<&str> {
    entries.iter().map(|(path, _, _)| path.as_str()).collect()
}

#[test]
fn same_programs_give_the_same_bytes() {
    let first = made(&[LINUX, ARM, WINDOWS], Duration::ZERO);
    let second = made(&[WINDOWS, LINUX, ARM], Duration::from_secs(90_000));
    assert!(first.keys().eq(second.keys()), "{:?}\n{:?}", first.keys(), second.keys());
    for (name, content) in &first {
        assert!(*content == second[name], "{name} differs");
    }
}

#[test]
fn archives_contain_the_program_its_documents_and_its_sbom() {
    let files = made(&[LINUX, WINDOWS], Duration::ZERO);
    let version = release().version;
    let documents = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
    for (triple, extension, program, mode) in
        [(LINUX, "tar.gz", "belljar", 0o755), (WINDOWS, "zip", "belljar.exe", 0o100_755)]
    {
        let archive = ending(&files, &format!("{triple}.{extension}"));
        let entries = if extension == "zip" { unzip(archive) } else { untar(archive) };
        let folder = format!("belljar-{version}-{triple}");
        let names = documents.into_iter().chain([program, "belljar.cdx.json"]);
        let mut expected: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
        expected.sort();
        assert_eq!(paths(&entries), expected);
        for (path, found, content) in &entries {
            let name = path.rsplit_once('/').unwrap().1;
            let wanted = if name == program { mode } else { mode & !0o111 };
            assert_eq!(*found, wanted, "{path}");
            match name {
                _ if name == program => assert_eq!(*content, format!("the program for {triple}").into_bytes()),
                "belljar.cdx.json" => assert_eq!(content, ending(&files, &format!("{triple}.cdx.json"))),
                _ => assert_eq!(*content, std::fs::read(workspace().unwrap().join(name)).unwrap(), "{path}"),
            }
        }
    }
}

#[test]
fn sbom_lists_the_crates_of_the_program_and_no_others() {
    let files = made(&[LINUX], Duration::ZERO);
    let sbom: Value = serde_json::from_slice(ending(&files, &format!("{LINUX}.cdx.json"))).unwrap();
    assert_eq!([&sbom["bomFormat"], &sbom["specVersion"]], ["CycloneDX", "1.5"]);
    assert_eq!(sbom["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(sbom["metadata"]["component"]["name"], "belljar");
    let components = sbom["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let wasmtime = named("wasmtime").unwrap();
    let version = wasmtime["version"].as_str().unwrap();
    assert_eq!(wasmtime["purl"], format!("pkg:cargo/wasmtime@{version}"));
    assert_eq!(wasmtime["licenses"], json!([{ "expression": "Apache-2.0 WITH LLVM-exception" }]));
    assert!(named("belljar-core").unwrap().get("purl").is_none());
    // The program itself, a dependency of tests, and a program of the workspace.
    for other in ["belljar", "libtest-mimic", "xtask"] {
        assert!(named(other).is_none(), "{other}");
    }
    let mut known: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    known.push(&sbom["metadata"]["component"]["bom-ref"]);
    let dependencies = sbom["dependencies"].as_array().unwrap();
    assert_eq!(dependencies.len(), known.len());
    for dependency in dependencies {
        let linked = dependency["dependsOn"].as_array().into_iter().flatten();
        for reference in linked.chain([&dependency["ref"]]) {
            assert!(known.contains(&reference), "{reference} is not described");
        }
    }
}

#[test]
fn bundles_have_the_manifest_and_the_program_of_their_platform() {
    let files = made(&[LINUX, WINDOWS], Duration::ZERO);
    for (triple, system, program) in [(LINUX, "linux", "server/belljar"), (WINDOWS, "win32", "server/belljar.exe")] {
        let entries = unzip(ending(&files, &format!("{triple}.mcpb")));
        assert_eq!(paths(&entries), ["LICENSE-APACHE", "LICENSE-MIT", "manifest.json", program]);
        let manifest: Value = serde_json::from_slice(&entries[2].2).unwrap();
        assert_eq!(manifest["server"]["entry_point"], program);
        assert_eq!(manifest["server"]["mcp_config"]["command"], format!("${{__dirname}}/{program}"));
        assert_eq!(manifest["compatibility"]["platforms"], json!([system]));
        assert_eq!(
            (entries[3].1, entries[3].2.as_slice()),
            (0o100_755, format!("the program for {triple}").as_bytes())
        );
    }
}

#[test]
fn build_contexts_of_containers_are_made_for_linux() {
    let files = made(&[LINUX, WINDOWS], Duration::ZERO);
    let entries = untar(ending(&files, "-container.tar.gz"));
    assert_eq!(paths(&entries), ["Dockerfile", "LICENSE-APACHE", "LICENSE-MIT", "belljar"]);
    assert!(String::from_utf8_lossy(&entries[0].2).contains("\nCOPY --chmod=0755 belljar "));
    assert_eq!(entries[3].1, 0o755);
}

#[test]
fn formula_and_winget_manifest_name_the_archives_that_exist() {
    let files = made(&[LINUX], Duration::ZERO);
    let sums = String::from_utf8(files[SUMS].clone()).unwrap();
    let sum = |ending: &str| sums.lines().find(|line| line.ends_with(ending)).unwrap()[..64].to_owned();
    let formula = String::from_utf8(files["belljar.rb"].clone()).unwrap();
    assert!(formula.contains(&format!("    sha256 \"{}\"\n", sum(&format!("{LINUX}.tar.gz")))), "{formula}");
    assert!(formula.contains(&format!("/releases/download/v{0}/belljar-{0}-{LINUX}.tar.gz\"", release().version)));
    assert!(formula.contains("  depends_on :linux\n") && formula.contains("depends_on arch: :x86_64\n"), "{formula}");
    assert!(!formula.contains("macos"), "{formula}");
    assert!(!files.keys().any(|name| name.ends_with(".yaml")), "{:?}", files.keys());

    let files = made(&[LINUX, ARM, MAC, WINDOWS], Duration::ZERO);
    let sums = String::from_utf8(files[SUMS].clone()).unwrap();
    let formula = String::from_utf8(files["belljar.rb"].clone()).unwrap();
    for part in ["  on_linux do\n    on_arm do\n", "    on_intel do\n", "  on_macos do\n    depends_on arch: :arm64\n"]
    {
        assert!(formula.contains(part), "{part}: {formula}");
    }
    assert!(!formula.contains("depends_on :"), "{formula}");
    let installer = String::from_utf8(files["Belljar.Belljar.installer.yaml"].clone()).unwrap();
    let archive = format!("belljar-{}-{WINDOWS}.zip", release().version);
    let sum = sums.lines().find(|line| line.ends_with(&archive)).unwrap()[..64].to_uppercase();
    assert!(installer.contains(&format!("  InstallerSha256: {sum}\n")), "{installer}");
    assert!(installer.contains(&format!("'{}\\belljar.exe'", archive.trim_end_matches(".zip"))), "{installer}");
}

#[test]
fn wrong_options_are_errors() {
    let parsed = |options: &[&str]| parse(options.iter().map(|&option| option.to_owned()));
    let failed = |options: &[&str]| parsed(options).unwrap_err();
    assert!(failed(&["--program", "belljar"]).contains("TRIPLE=FILE"));
    assert!(failed(&["--program", "wasm32-wasip2=belljar"]).contains(LINUX));
    let twice = format!("{LINUX}=belljar");
    assert!(failed(&["--program", &twice, "--program", &twice]).contains("two programs"));
    assert!(failed(&["--out"]).contains("--out needs a value"));
    assert!(failed(&["--outt"]).contains("unknown option"));
    assert!(parsed(&["--help"]).unwrap().help);
    for name in ["belljar-99.0.0.tar.gz", "other-0.1.0.tar.gz", "belljar.whl"] {
        assert!(package_name(&release(), Path::new(name)).is_err(), "{name}");
    }
    let occupied = tempfile::tempdir().unwrap();
    std::fs::write(occupied.path().join("file"), "").unwrap();
    assert!(Output::create(occupied.path()).unwrap_err().contains("is not empty"));
}

#[test]
fn release_workflow_has_a_job_for_each_platform() {
    let workflow = std::fs::read_to_string(workspace().unwrap().join(".github/workflows/release.yml")).unwrap();
    let named = workflow.lines().filter_map(|line| line.trim().strip_prefix("triple: "));
    assert_eq!(named.collect::<Vec<_>>(), platform::PLATFORMS.map(|platform| platform.triple));
}
