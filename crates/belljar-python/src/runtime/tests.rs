//! The runtime's files from the real npm, and from servers and packages that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use belljar_cache::Cache;
use belljar_core::progress::NoProgress;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::{
    FileProblem, Fingerprint, Mismatch, Options, Release, RuntimeError, RuntimeFile, RuntimeFiles, SourceError,
    Upstream, obtain_from,
};

/// A release whose files are `wasm`, `stdlib` and `lock`.
pub(super) static TINY: Release = Release {
    version: "0.0.1",
    python: (3, 14),
    micro: 2,
    pre_release: "",
    pyemscripten: (2026, 0),
    emscripten: (5, 0, 3),
    wasm: Fingerprint { size: 4, sha256: "336154bf67f765f8f75d16a0accee61b5ee5f6a75b2a2905703df913bd550f3e" },
    stdlib: Fingerprint { size: 6, sha256: "6c68381b6df5a940cfb0baba81a6bc842c8ab29d3e7fb668f358dbedcc0d7d80" },
    lock: Fingerprint { size: 4, sha256: "0c030586945fe504b604ecc2e875c38ede400cd5cd73da9730302162e6b02c6f" },
};

struct Fixture {
    _directory: TempDir,
    cache: Cache,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(Some(directory.path().to_path_buf())).unwrap();
        Fixture { _directory: directory, cache }
    }

    fn obtain(
        &self,
        release: &'static Release,
        options: &Options,
        upstream: &Upstream,
    ) -> Result<RuntimeFiles, RuntimeError> {
        obtain_from(upstream, release, options, &self.cache, &NoProgress)
    }
}

/// No CDN, but the user's npm.
fn npm_alone() -> Upstream {
    Upstream { cdn: "http://127.0.0.1:1".to_owned(), ..Upstream::default() }
}

/// Neither CDN nor npm.
fn nothing() -> Upstream {
    Upstream { npm: "no-such-npm".into(), ..npm_alone() }
}

/// Whether the tests with the real npm can run. If not, they say so.
fn npm_is_there() -> bool {
    let there = Command::new(Upstream::default().npm).arg("--version").output().is_ok();
    if !there {
        eprintln!("SKIPPED: npm is not installed");
    }
    there
}

#[test]
fn npm_delivers_what_the_cache_and_a_directory_then_hold() {
    if !npm_is_there() {
        return;
    }
    for release in Release::all() {
        let fixture = Fixture::new();
        fixture.obtain(release, &Options::default(), &npm_alone()).unwrap();

        let offline = Options { offline: true, ..Options::default() };
        let files = fixture.obtain(release, &offline, &nothing()).unwrap();
        for file in RuntimeFile::ALL {
            assert_eq!(files.read(file).unwrap().len() as u64, release.fingerprint(file).size);
        }

        let directory = Options { directory: files.wasm.parent().map(Into::into), ..Options::default() };
        let given = Fixture::new().obtain(release, &directory, &nothing()).unwrap();
        assert_eq!(given.lock, files.lock);

        fs::write(&files.stdlib, b"PK").unwrap();
        let changed = files.read(RuntimeFile::Stdlib).unwrap_err();
        assert!(matches!(changed, RuntimeError::Changed { .. }), "{changed}");
        let wrong = fixture.obtain(release, &directory, &nothing()).unwrap_err();
        assert!(
            matches!(wrong, RuntimeError::Given { file: RuntimeFile::Stdlib, problem: FileProblem::Mismatch(_), .. }),
            "{wrong}"
        );
    }
}

/// A directory with the files of [`TINY`].
fn tiny_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, content) in RuntimeFile::ALL.into_iter().zip(["wasm", "stdlib", "lock"]) {
        fs::write(directory.path().join(file.name()), content).unwrap();
    }
    directory
}

fn given_error(directory: &TempDir) -> String {
    let options = Options { directory: Some(directory.path().to_path_buf()), ..Options::default() };
    let error = Fixture::new().obtain(&TINY, &options, &nothing()).unwrap_err();
    assert!(matches!(error, RuntimeError::Given { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_given_directory_serves() {
    let directory = tiny_directory();
    let options = Options { directory: Some(directory.path().to_path_buf()), ..Options::default() };
    let files = Fixture::new().obtain(&TINY, &options, &nothing()).unwrap();
    assert_eq!(files.read(RuntimeFile::Stdlib).unwrap(), b"stdlib");
}

#[test]
fn a_wrong_file_in_a_given_directory_is_named_with_both_hashes() {
    let directory = tiny_directory();
    let path = directory.path().join("python_stdlib.zip");
    fs::write(&path, "stdlob").unwrap();
    let error = given_error(&directory);
    let actual = "00269e97219cf3a53f4e4d6ab80998c08ccc3ee4c54f3e08a1fb487ac4311e07";
    for part in [&*path.to_string_lossy(), TINY.stdlib.sha256, actual, "0.0.1"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
}

#[test]
fn a_file_of_another_size_in_a_given_directory_is_refused() {
    for content in ["stdli", "stdlib and more"] {
        let directory = tiny_directory();
        fs::write(directory.path().join("python_stdlib.zip"), content).unwrap();
        assert!(given_error(&directory).contains("python_stdlib.zip"));
    }
}

#[test]
fn a_missing_file_in_a_given_directory_is_named() {
    let directory = tiny_directory();
    fs::remove_file(directory.path().join("pyodide-lock.json")).unwrap();
    assert!(given_error(&directory).contains("pyodide-lock.json"));
}

#[test]
fn offline_nothing_is_fetched_and_the_error_says_what_to_do() {
    let options = Options { offline: true, ..Options::default() };
    let error = Fixture::new().obtain(&TINY, &options, &nothing()).unwrap_err();
    assert!(matches!(error, RuntimeError::Offline { .. }));
    assert!(error.to_string().contains("BELLJAR_RUNTIME"), "{error}");
}

#[test]
fn when_nothing_delivers_the_error_tells_both_causes_and_what_to_do() {
    let error = Fixture::new().obtain(&TINY, &Options::default(), &nothing()).unwrap_err().to_string();
    for part in ["http://127.0.0.1:1/v0.0.1/full/", "`no-such-npm` is not installed", "BELLJAR_RUNTIME", "HTTPS_PROXY"]
    {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
}

/// An HTTP server on this machine. `answer` writes the whole answer to a request for a path.
fn serve(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Upstream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                request.extend_from_slice(&byte);
            }
            let request = String::from_utf8(request).unwrap();
            if let Some(path) = request.split(' ').nth(1) {
                answer(path, &mut stream);
            }
        }
    });
    Upstream { cdn: format!("http://{address}"), npm: "no-such-npm".into(), stall_timeout: Duration::from_millis(300) }
}

fn respond(stream: &mut TcpStream, head: &str, body: &[u8]) {
    // The client hangs up when it has seen enough.
    let _ = write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").and_then(|()| stream.write_all(body));
}

/// What a file of [`TINY`] holds, by its path on the CDN.
fn content(path: &str) -> &'static [u8] {
    match path.rsplit_once('/').unwrap() {
        ("/v0.0.1/full", "pyodide.asm.wasm") => b"wasm",
        ("/v0.0.1/full", "python_stdlib.zip") => b"stdlib",
        ("/v0.0.1/full", "pyodide-lock.json") => b"lock",
        _ => panic!("{path} was asked for"),
    }
}

/// Why the CDN did not deliver. Nothing of what it sent may be left.
fn cdn_error(upstream: &Upstream) -> SourceError {
    let fixture = Fixture::new();
    let error = fixture.obtain(&TINY, &Options::default(), upstream).unwrap_err();
    assert_eq!(fixture.cache.usage().unwrap(), []);
    assert_eq!(fixture.cache.root().join("entries").read_dir().unwrap().count(), 0);
    match error {
        RuntimeError::Unobtainable { cdn, .. } => *cdn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_cdn_delivers_into_the_cache() {
    let fixture = Fixture::new();
    let upstream = serve(|path, stream| respond(stream, "200 OK", content(path)));
    fixture.obtain(&TINY, &Options::default(), &upstream).unwrap();
    let files = fixture.obtain(&TINY, &Options::default(), &nothing()).unwrap();
    assert_eq!(files.read(RuntimeFile::Lock).unwrap(), b"lock");
}

#[test]
fn a_compressed_transfer_is_unpacked() {
    let upstream = serve(|path, stream| {
        let mut body = GzEncoder::new(Vec::new(), Compression::default());
        body.write_all(content(path)).unwrap();
        respond(stream, "200 OK\r\nContent-Encoding: gzip", &body.finish().unwrap());
    });
    Fixture::new().obtain(&TINY, &Options::default(), &upstream).unwrap();
}

#[test]
fn a_redirect_is_followed() {
    let upstream = serve(|path, stream| match path.strip_prefix("/moved") {
        Some(path) => respond(stream, "200 OK", content(path)),
        None => respond(stream, &format!("302 Found\r\nLocation: /moved{path}"), b""),
    });
    Fixture::new().obtain(&TINY, &Options::default(), &upstream).unwrap();
}

#[test]
fn redirects_without_end_are_given_up() {
    let upstream = serve(|path, stream| respond(stream, &format!("302 Found\r\nLocation: {path}"), b""));
    assert!(matches!(cdn_error(&upstream), SourceError::BadAnswer { .. }));
}

#[test]
fn a_file_that_is_not_there_is_told_by_its_status() {
    let upstream = serve(|_, stream| respond(stream, "404 Not Found", b"sorry"));
    assert!(matches!(cdn_error(&upstream), SourceError::Status { status: 404, .. }));
}

#[test]
fn a_transfer_that_breaks_off_is_told() {
    let upstream = serve(|_, stream| respond(stream, "200 OK\r\nContent-Length: 4", b"wa"));
    let error = cdn_error(&upstream);
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error:?}");
}

#[test]
fn a_transfer_that_ends_early_without_saying_its_length_is_told() {
    let upstream = serve(|_, stream| respond(stream, "200 OK", b"wa"));
    let error = cdn_error(&upstream);
    assert!(
        matches!(error, SourceError::Mismatch { mismatch: Mismatch::Short { actual: 2, expected: 4 }, .. }),
        "{error:?}"
    );
}

#[test]
fn another_file_is_refused() {
    let upstream = serve(|_, stream| respond(stream, "200 OK", b"evil"));
    let error = cdn_error(&upstream);
    assert!(matches!(error, SourceError::Mismatch { mismatch: Mismatch::Hash { .. }, .. }), "{error:?}");
}

#[test]
fn a_transfer_without_end_is_stopped_at_the_expected_size() {
    let upstream = serve(|_, stream| {
        respond(stream, "200 OK", b"");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let error = cdn_error(&upstream);
    assert!(matches!(error, SourceError::Mismatch { mismatch: Mismatch::Long { expected: 4 }, .. }), "{error:?}");
}

#[test]
fn a_connection_that_stalls_is_given_up() {
    let (keep, kept) = std::sync::mpsc::channel();
    let upstream = serve(move |_, stream| {
        respond(stream, "200 OK\r\nContent-Length: 4", b"wa");
        keep.send(stream.try_clone().unwrap()).unwrap();
    });
    let error = cdn_error(&upstream);
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error:?}");
    drop(kept);
}
