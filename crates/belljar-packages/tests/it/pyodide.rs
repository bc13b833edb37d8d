//! Pyodide's wheels, served on loopback: preferred, checked, done without where they cannot be had.

use belljar_core::progress::NoProgress;
use belljar_packages::{InstallError, Kind, PyodideSource, Source};
use tempfile::TempDir;

use crate::forge::{Entry, Forge, sha256, zip};
use crate::server::Server;
use crate::support::{Bench, request};

const COMPILED: &str = "cp314-cp314-pyemscripten_2026_0_wasm32";

/// A release of two files: a compiled `attrs` of an old version, which needs `libthing`, a zip of one library.
struct Release {
    server: Server,
    directory: TempDir,
    wheel: Forge,
}

impl Release {
    fn new() -> Self {
        let release = Release {
            server: Server::start(),
            directory: tempfile::tempdir().unwrap(),
            wheel: Forge::new("attrs", "24.2.0").tag(COMPILED),
        };
        let library = zip(&[Entry::file("libthing.so", b"\0asm\x01\0\0\0")]);
        release.server.put(&release.wheel.filename(), release.wheel.bytes());
        release.server.put("libthing-1.0.zip", library.clone());
        let lock = format!(
            r#"{{"info": {{}}, "packages": {{
                "attrs": {{"name": "attrs", "version": "24.2.0", "file_name": "{}", "sha256": "{}",
                    "package_type": "package", "depends": ["libthing", "six"], "imports": ["attr", "attrs"]}},
                "libthing": {{"name": "libthing", "version": "1.0", "file_name": "libthing-1.0.zip", "sha256": "{}",
                    "package_type": "shared_library", "depends": [], "imports": []}},
                "six": {{"name": "six", "version": "1.16.0", "file_name": "six-1.16.0-py2.py3-none-any.whl",
                    "sha256": "{}", "package_type": "package", "depends": [], "imports": ["six"]}}
            }}}}"#,
            release.wheel.filename(),
            sha256(&release.wheel.bytes()),
            sha256(&library),
            "0".repeat(64),
        );
        std::fs::write(release.directory.path().join("pyodide-lock.json"), lock).unwrap();
        release
    }

    fn bench(&self) -> Bench {
        Bench::with(|settings| {
            settings.pyodide = Some(PyodideSource {
                lock: self.directory.path().join("pyodide-lock.json"),
                base_url: self.server.url(),
            });
        })
    }
}

#[test]
fn the_locks_wheels_are_preferred_with_what_they_depend_on() {
    let release = Release::new();
    let bench = release.bench();
    let (resolution, wheels) = bench.install(&["attrs"]).unwrap();
    let files: Vec<_> = resolution
        .pinned()
        .iter()
        .map(|pinned| (pinned.name.as_str(), pinned.version.as_str(), pinned.source, pinned.kind))
        .collect();
    assert_eq!(
        files,
        [
            ("attrs", "24.2.0", Source::Pyodide, Kind::Wheel),
            ("libthing", "1.0", Source::Pyodide, Kind::SharedLibrary),
            // A pure wheel: the lock's version, the index's file.
            ("six", "1.16.0", Source::Index, Kind::Wheel),
        ]
    );
    for wheel in &wheels {
        wheel.unpack().unwrap();
    }
    // Nothing was asked but the two files themselves.
    let mut requests = release.server.requests();
    requests.sort();
    assert_eq!(requests, [format!("/full/{}", release.wheel.filename()), "/full/libthing-1.0.zip".to_owned()]);
}

#[test]
fn another_version_than_the_locks_can_be_asked_for() {
    let release = Release::new();
    let bench = release.bench();
    let resolution = bench.resolve(&["attrs>=25"]).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().source, Source::Index);
    assert!(resolution.get("libthing").is_none());
}

#[test]
fn a_wheel_that_is_not_what_the_lock_says_is_refused() {
    let release = Release::new();
    release
        .server
        .put(&release.wheel.filename(), Forge::new("attrs", "24.2.0").tag(COMPILED).file("x.py", b"").bytes());
    let error = release.bench().install(&["attrs"]).unwrap_err();
    assert!(matches!(error, InstallError::HashMismatch { .. }), "{error}");
}

#[test]
fn a_file_that_the_server_does_not_have_is_taken_from_the_index() {
    let release = Release::new();
    let empty = Server::start();
    let bench = Bench::with(|settings| {
        let lock = release.directory.path().join("pyodide-lock.json");
        settings.pyodide = Some(PyodideSource { lock, base_url: empty.url() });
    });
    let (resolution, wheels) = bench.install(&["attrs"]).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().source, Source::Index);
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
    assert_eq!(wheels.len(), resolution.pinned().len());
    // From now on that is what the request resolves to, without asking the server again.
    let asked = empty.requests().len();
    assert_eq!(bench.installer.resolve(&request(&["attrs"]), &NoProgress).unwrap(), resolution);
    assert_eq!(empty.requests().len(), asked);
}

#[test]
fn a_server_that_does_not_answer_is_done_without() {
    let release = Release::new();
    let bench = Bench::with(|settings| {
        let lock = release.directory.path().join("pyodide-lock.json");
        settings.pyodide = Some(PyodideSource { lock, base_url: "http://127.0.0.1:9/full/".into() });
    });
    assert_eq!(bench.install(&["attrs"]).unwrap().0.get("attrs").unwrap().source, Source::Index);
}

#[test]
fn a_server_that_did_not_answer_is_asked_last_until_it_does() {
    let release = Release::new();
    let failing = Server::start();
    failing.fail();
    let directory = tempfile::tempdir().unwrap();
    let bench = || {
        Bench::with(|settings| {
            let lock = release.directory.path().join("pyodide-lock.json");
            settings.pyodide = Some(PyodideSource { lock, base_url: failing.url() });
            settings.cache = belljar_cache::Cache::open(Some(directory.path().into())).unwrap();
        })
    };
    assert_eq!(bench().install(&["attrs"]).unwrap().0.get("attrs").unwrap().source, Source::Index);
    let asked = failing.requests().len();
    assert!(asked > 0);
    // Another set that has the same file, in another process: the server is left alone.
    assert_eq!(bench().install(&["attrs", "six"]).unwrap().0.get("attrs").unwrap().source, Source::Index);
    assert_eq!(failing.requests().len(), asked);
}

#[test]
fn what_only_an_unreachable_server_has_is_an_error_that_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("pyodide-lock.json");
    let entry = format!(
        r#"{{"info": {{}}, "packages": {{"numpy": {{"name": "numpy", "version": "2.4.6", "sha256": "{}",
        "file_name": "numpy-2.4.6-{COMPILED}.whl", "package_type": "package", "depends": [], "imports": ["numpy"]}}}}}}"#,
        "0".repeat(64)
    );
    std::fs::write(&lock, entry).unwrap();
    let bench = Bench::with(|settings| {
        settings.pyodide = Some(PyodideSource { lock, base_url: "http://127.0.0.1:9/full/".into() });
    });
    let text = bench.install(&["numpy"]).unwrap_err().to_string();
    assert!(text.contains("numpy: no wheel for this platform"), "{text}");
    assert!(text.contains("Pyodide has a wheel of version 2.4.6"), "{text}");
}

#[test]
fn the_lock_tells_which_package_provides_a_module() {
    let release = Release::new();
    let bench = release.bench();
    let known = bench.installer.known().unwrap();
    let needs = belljar_packages::needs::of_code("import attr\n", &known).unwrap();
    assert_eq!(needs.inferred[0].requirement.name(), "attrs");
}

#[test]
fn a_bundle_holds_pyodides_files_too() {
    let release = Release::new();
    let bundle = tempfile::tempdir().unwrap();
    let online = release.bench();
    let (resolution, _) = online.install(&["attrs"]).unwrap();
    online.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    let asked = release.server.requests().len();
    let offline = Bench::with(|settings| {
        settings.offline = true;
        settings.find_links = vec![bundle.path().to_str().unwrap().to_owned()];
        settings.pyodide = Some(PyodideSource {
            lock: release.directory.path().join("pyodide-lock.json"),
            base_url: release.server.url(),
        });
    });
    let (again, wheels) = offline.install(&["attrs"]).unwrap();
    assert_eq!(again.key(), resolution.key());
    assert_eq!(wheels.len(), 3);
    assert_eq!(release.server.requests().len(), asked);
}
