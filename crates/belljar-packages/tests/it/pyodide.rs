//! Tests of Pyodide's wheels, with a server on loopback: preference, verification, fallback to the index.

use belljar_core::NoProgress;
use belljar_packages::{FileKind, FileSource, InstallError, PyodideSource};
use tempfile::TempDir;

use crate::forge::{Entry, Forge, sha256, zip};
use crate::server::Server;
use crate::support::{Fixture, request};

const COMPILED: &str = "cp314-cp314-pyemscripten_2026_0_wasm32";

/// A release with two files: an old version of `attrs` as a compiled wheel, and `libthing`, a zip with a shared library
/// that the wheel depends on.
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

    fn fixture(&self) -> Fixture {
        Fixture::with(|settings| {
            settings.pyodide = Some(PyodideSource {
                lock: self.directory.path().join("pyodide-lock.json"),
                base_url: self.server.url(),
            });
        })
    }
}

#[test]
fn wheels_of_the_lock_are_preferred_with_their_dependencies() {
    let release = Release::new();
    let fixture = release.fixture();
    let (resolution, wheels) = fixture.install(&["attrs"]).unwrap();
    let files: Vec<_> = resolution
        .pinned()
        .iter()
        .map(|pinned| (pinned.name.as_str(), pinned.version.as_str(), pinned.source, pinned.kind))
        .collect();
    assert_eq!(
        files,
        [
            ("attrs", "24.2.0", FileSource::Pyodide, FileKind::Wheel),
            ("libthing", "1.0", FileSource::Pyodide, FileKind::SharedLibrary),
            // A pure wheel has the lock's version, but is the index's file.
            ("six", "1.16.0", FileSource::Index, FileKind::Wheel),
        ]
    );
    for wheel in &wheels {
        wheel.unpack().unwrap();
    }
    // Only the two files themselves were requested.
    let mut requests = release.server.requests();
    requests.sort();
    assert_eq!(requests, [format!("/full/{}", release.wheel.filename()), "/full/libthing-1.0.zip".to_owned()]);
}

#[test]
fn version_other_than_the_locks_comes_from_the_index() {
    let release = Release::new();
    let fixture = release.fixture();
    let resolution = fixture.resolve(&["attrs>=25"]).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().source, FileSource::Index);
    assert!(resolution.get("libthing").is_none());
}

#[test]
fn wheel_that_differs_from_the_lock_is_refused() {
    let release = Release::new();
    release
        .server
        .put(&release.wheel.filename(), Forge::new("attrs", "24.2.0").tag(COMPILED).file("x.py", b"").bytes());
    let error = release.fixture().install(&["attrs"]).unwrap_err();
    assert!(matches!(error, InstallError::HashMismatch { .. }), "{error}");
}

#[test]
fn file_missing_on_the_server_is_taken_from_the_index() {
    let release = Release::new();
    let empty = Server::start();
    let fixture = Fixture::with(|settings| {
        let lock = release.directory.path().join("pyodide-lock.json");
        settings.pyodide = Some(PyodideSource { lock, base_url: empty.url() });
    });
    let (resolution, wheels) = fixture.install(&["attrs"]).unwrap();
    assert_eq!(resolution.get("attrs").unwrap().source, FileSource::Index);
    assert_eq!(resolution.get("attrs").unwrap().version, "24.2.0");
    assert_eq!(wheels.len(), resolution.pinned().len());
    // The new resolution is cached, and the server is not asked again.
    let request_count = empty.requests().len();
    assert_eq!(fixture.installer.resolve(&request(&["attrs"]), &NoProgress).unwrap(), resolution);
    assert_eq!(empty.requests().len(), request_count);
}

#[test]
fn unreachable_server_is_replaced_by_the_index() {
    let release = Release::new();
    let fixture = Fixture::with(|settings| {
        let lock = release.directory.path().join("pyodide-lock.json");
        settings.pyodide = Some(PyodideSource { lock, base_url: "http://127.0.0.1:9/full/".into() });
    });
    assert_eq!(fixture.install(&["attrs"]).unwrap().0.get("attrs").unwrap().source, FileSource::Index);
}

#[test]
fn failed_server_is_avoided_for_other_requests() {
    let release = Release::new();
    let failing = Server::start();
    failing.fail();
    let directory = tempfile::tempdir().unwrap();
    let fixture = || {
        Fixture::with(|settings| {
            let lock = release.directory.path().join("pyodide-lock.json");
            settings.pyodide = Some(PyodideSource { lock, base_url: failing.url() });
            settings.cache = belljar_cache::Cache::open(Some(directory.path().into())).unwrap();
        })
    };
    assert_eq!(fixture().install(&["attrs"]).unwrap().0.get("attrs").unwrap().source, FileSource::Index);
    let request_count = failing.requests().len();
    assert!(request_count > 0);
    // Another request for the same file, as from another process: the server is not asked.
    assert_eq!(fixture().install(&["attrs", "six"]).unwrap().0.get("attrs").unwrap().source, FileSource::Index);
    assert_eq!(failing.requests().len(), request_count);
}

#[test]
fn package_of_an_unreachable_server_only_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("pyodide-lock.json");
    let entry = format!(
        r#"{{"info": {{}}, "packages": {{"numpy": {{"name": "numpy", "version": "2.4.6", "sha256": "{}",
        "file_name": "numpy-2.4.6-{COMPILED}.whl", "package_type": "package", "depends": [], "imports": ["numpy"]}}}}}}"#,
        "0".repeat(64)
    );
    std::fs::write(&lock, entry).unwrap();
    let fixture = Fixture::with(|settings| {
        settings.pyodide = Some(PyodideSource { lock, base_url: "http://127.0.0.1:9/full/".into() });
    });
    let text = fixture.install(&["numpy"]).unwrap_err().to_string();
    assert!(text.contains("numpy: no wheel for this platform"), "{text}");
    assert!(text.contains("Pyodide has a wheel of version 2.4.6"), "{text}");
}

#[test]
fn module_is_mapped_to_its_package_by_the_lock() {
    let release = Release::new();
    let fixture = release.fixture();
    let available = fixture.installer.available_modules().unwrap();
    let dependencies = belljar_packages::Dependencies::from_code("import attr\n", &available).unwrap();
    assert_eq!(dependencies.inferred[0].requirement.name(), "attrs");
}

#[test]
fn bundle_contains_pyodides_files() {
    let release = Release::new();
    let bundle = tempfile::tempdir().unwrap();
    let online = release.fixture();
    let (resolution, _) = online.install(&["attrs"]).unwrap();
    online.installer.download(&resolution, bundle.path(), &NoProgress).unwrap();
    let request_count = release.server.requests().len();
    let offline = Fixture::with(|settings| {
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
    assert_eq!(release.server.requests().len(), request_count);
}
