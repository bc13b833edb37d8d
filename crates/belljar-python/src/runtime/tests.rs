//! Tests of locating and fetching runtime files: with the real npm, and with servers and packages that misbehave.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use belljar_cache::Cache;
use belljar_core::NoProgress;
use belljar_testing::{Capability, require};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::{
    DownloadSources, FileDigest, FileProblem, Mismatch, Options, Release, RuntimeError, RuntimeFile, RuntimeFiles,
    SourceError, locate_or_fetch_from,
};

/// A release whose files are `wasm`, `stdlib` and `lock`.
pub(super) static TINY: Release = Release {
    version: "0.0.1",
    python: (3, 14),
    micro: 2,
    pre_release: "",
    pyemscripten: (2026, 0),
    emscripten: (5, 0, 3),
    wasm: FileDigest { size: 4, sha256: "336154bf67f765f8f75d16a0accee61b5ee5f6a75b2a2905703df913bd550f3e" },
    stdlib: FileDigest { size: 6, sha256: "6c68381b6df5a940cfb0baba81a6bc842c8ab29d3e7fb668f358dbedcc0d7d80" },
    lock: FileDigest { size: 4, sha256: "0c030586945fe504b604ecc2e875c38ede400cd5cd73da9730302162e6b02c6f" },
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

    fn locate_or_fetch(
        &self,
        release: &'static Release,
        options: &Options,
        sources: &DownloadSources,
    ) -> Result<RuntimeFiles, RuntimeError> {
        locate_or_fetch_from(sources, release, options, &self.cache, &NoProgress)
    }
}

/// Returns sources with the user's npm and an unreachable CDN.
fn npm_only() -> DownloadSources {
    DownloadSources { cdn: "http://127.0.0.1:1".to_owned(), ..DownloadSources::default() }
}

/// Returns sources with an unreachable CDN and without npm.
fn no_sources() -> DownloadSources {
    DownloadSources { npm: "no-such-npm".into(), ..npm_only() }
}

#[test]
fn files_from_npm_are_cached_and_usable_as_directory() {
    require(Capability::Npm);
    for release in Release::all() {
        let fixture = Fixture::new();
        fixture.locate_or_fetch(release, &Options::default(), &npm_only()).unwrap();

        let offline = Options { offline: true, ..Options::default() };
        let files = fixture.locate_or_fetch(release, &offline, &no_sources()).unwrap();
        for file in RuntimeFile::ALL {
            assert_eq!(files.read(file).unwrap().len() as u64, release.digest(file).size);
        }

        let directory = Options { directory: files.wasm.parent().map(Into::into), ..Options::default() };
        let given = Fixture::new().locate_or_fetch(release, &directory, &no_sources()).unwrap();
        assert_eq!(given.lock, files.lock);

        fs::write(&files.stdlib, b"PK").unwrap();
        let changed = files.read(RuntimeFile::Stdlib).unwrap_err();
        assert!(matches!(changed, RuntimeError::Changed { .. }), "{changed}");
        let wrong = fixture.locate_or_fetch(release, &directory, &no_sources()).unwrap_err();
        assert!(
            matches!(
                wrong,
                RuntimeError::InvalidDirectory { file: RuntimeFile::Stdlib, problem: FileProblem::Mismatch(_), .. }
            ),
            "{wrong}"
        );
    }
}

/// Creates a directory with the files of [`TINY`].
fn tiny_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (file, content) in RuntimeFile::ALL.into_iter().zip(["wasm", "stdlib", "lock"]) {
        fs::write(directory.path().join(file.name()), content).unwrap();
    }
    directory
}

fn directory_error(directory: &TempDir) -> String {
    let options = Options { directory: Some(directory.path().to_path_buf()), ..Options::default() };
    let error = Fixture::new().locate_or_fetch(&TINY, &options, &no_sources()).unwrap_err();
    assert!(matches!(error, RuntimeError::InvalidDirectory { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn files_are_read_from_a_given_directory() {
    let directory = tiny_directory();
    let options = Options { directory: Some(directory.path().to_path_buf()), ..Options::default() };
    let files = Fixture::new().locate_or_fetch(&TINY, &options, &no_sources()).unwrap();
    assert_eq!(files.read(RuntimeFile::Stdlib).unwrap(), b"stdlib");
}

#[test]
fn wrong_file_error_names_both_hashes() {
    let directory = tiny_directory();
    let path = directory.path().join("python_stdlib.zip");
    fs::write(&path, "stdlob").unwrap();
    let error = directory_error(&directory);
    let actual = "00269e97219cf3a53f4e4d6ab80998c08ccc3ee4c54f3e08a1fb487ac4311e07";
    for part in [&*path.to_string_lossy(), TINY.stdlib.sha256, actual, "0.0.1"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
}

#[test]
fn file_of_wrong_size_is_rejected() {
    for content in ["stdli", "stdlib and more"] {
        let directory = tiny_directory();
        fs::write(directory.path().join("python_stdlib.zip"), content).unwrap();
        assert!(directory_error(&directory).contains("python_stdlib.zip"));
    }
}

#[test]
fn missing_file_is_named() {
    let directory = tiny_directory();
    fs::remove_file(directory.path().join("pyodide-lock.json")).unwrap();
    assert!(directory_error(&directory).contains("pyodide-lock.json"));
}

#[test]
fn offline_mode_fetches_nothing() {
    let options = Options { offline: true, ..Options::default() };
    let error = Fixture::new().locate_or_fetch(&TINY, &options, &no_sources()).unwrap_err();
    assert!(matches!(error, RuntimeError::Offline { .. }));
}

#[test]
fn error_names_failures_of_both_sources() {
    let error = Fixture::new().locate_or_fetch(&TINY, &Options::default(), &no_sources()).unwrap_err().to_string();
    for part in ["http://127.0.0.1:1/v0.0.1/full/", "`no-such-npm` is not installed"] {
        assert!(error.contains(part), "{part} is missing: {error}");
    }
}

/// Starts an HTTP server on this machine. `answer` writes the complete response to a request for a path.
fn serve(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> DownloadSources {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
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
    DownloadSources {
        cdn: format!("http://{address}"),
        npm: "no-such-npm".into(),
        // Long, since a busy machine stalls, too.
        stall_timeout: Duration::from_secs(60),
    }
}

fn respond(stream: &mut TcpStream, head: &str, body: &[u8]) {
    // Ignore errors: the client closes the connection when it has read enough.
    let _ = write!(stream, "HTTP/1.1 {head}\r\nConnection: close\r\n\r\n").and_then(|()| stream.write_all(body));
}

/// Returns the content of a file of [`TINY`], by its path on the CDN.
fn content(path: &str) -> &'static [u8] {
    match path.rsplit_once('/').unwrap() {
        ("/v0.0.1/full", "pyodide.asm.wasm") => b"wasm",
        ("/v0.0.1/full", "python_stdlib.zip") => b"stdlib",
        ("/v0.0.1/full", "pyodide-lock.json") => b"lock",
        _ => panic!("{path} was asked for"),
    }
}

/// Returns the CDN's failure, and checks that it left nothing in the cache.
fn cdn_error(sources: &DownloadSources) -> SourceError {
    let fixture = Fixture::new();
    let error = fixture.locate_or_fetch(&TINY, &Options::default(), sources).unwrap_err();
    assert_eq!(fixture.cache.usage().unwrap(), []);
    assert_eq!(fixture.cache.root().join("entries").read_dir().unwrap().count(), 0);
    match error {
        RuntimeError::Unobtainable { cdn, .. } => *cdn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_from_the_cdn_are_cached() {
    let fixture = Fixture::new();
    let sources = serve(|path, stream| respond(stream, "200 OK", content(path)));
    fixture.locate_or_fetch(&TINY, &Options::default(), &sources).unwrap();
    let files = fixture.locate_or_fetch(&TINY, &Options::default(), &no_sources()).unwrap();
    assert_eq!(files.read(RuntimeFile::Lock).unwrap(), b"lock");
}

#[test]
fn compressed_transfer_is_decompressed() {
    let sources = serve(|path, stream| {
        let mut body = GzEncoder::new(Vec::new(), Compression::default());
        body.write_all(content(path)).unwrap();
        respond(stream, "200 OK\r\nContent-Encoding: gzip", &body.finish().unwrap());
    });
    Fixture::new().locate_or_fetch(&TINY, &Options::default(), &sources).unwrap();
}

#[test]
fn redirect_is_followed() {
    let sources = serve(|path, stream| match path.strip_prefix("/moved") {
        Some(path) => respond(stream, "200 OK", content(path)),
        None => respond(stream, &format!("302 Found\r\nLocation: /moved{path}"), b""),
    });
    Fixture::new().locate_or_fetch(&TINY, &Options::default(), &sources).unwrap();
}

#[test]
fn endless_redirects_are_an_error() {
    let sources = serve(|path, stream| respond(stream, &format!("302 Found\r\nLocation: {path}"), b""));
    assert!(matches!(cdn_error(&sources), SourceError::BadAnswer { .. }));
}

#[test]
fn missing_file_on_the_cdn_is_an_error() {
    let sources = serve(|_, stream| respond(stream, "404 Not Found", b"sorry"));
    assert!(matches!(cdn_error(&sources), SourceError::Status { status: 404, .. }));
}

#[test]
fn interrupted_transfer_is_an_error() {
    let sources = serve(|_, stream| respond(stream, "200 OK\r\nContent-Length: 4", b"wa"));
    let error = cdn_error(&sources);
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error:?}");
}

#[test]
fn transfer_that_ends_early_is_an_error() {
    let sources = serve(|_, stream| respond(stream, "200 OK", b"wa"));
    let error = cdn_error(&sources);
    assert!(
        matches!(error, SourceError::Mismatch { mismatch: Mismatch::Short { actual: 2, expected: 4 }, .. }),
        "{error:?}"
    );
}

#[test]
fn modified_file_is_rejected() {
    let sources = serve(|_, stream| respond(stream, "200 OK", b"evil"));
    let error = cdn_error(&sources);
    assert!(matches!(error, SourceError::Mismatch { mismatch: Mismatch::Hash { .. }, .. }), "{error:?}");
}

#[test]
fn endless_transfer_stops_at_the_expected_size() {
    let sources = serve(|_, stream| {
        respond(stream, "200 OK", b"");
        while stream.write_all(&[0; 4096]).is_ok() {}
    });
    let error = cdn_error(&sources);
    assert!(matches!(error, SourceError::Mismatch { mismatch: Mismatch::Long { expected: 4 }, .. }), "{error:?}");
}

#[test]
fn stalled_connection_times_out() {
    let (keep, kept) = std::sync::mpsc::channel();
    let sources = serve(move |_, stream| {
        respond(stream, "200 OK\r\nContent-Length: 4", b"wa");
        keep.send(stream.try_clone().unwrap()).unwrap();
    });
    let error = cdn_error(&DownloadSources { stall_timeout: Duration::from_secs(3), ..sources });
    assert!(matches!(error, SourceError::Interrupted { .. }), "{error:?}");
    drop(kept);
}

#[test]
fn compressed_file_of_a_bundle_is_verified_and_read_as_it_was() {
    let directory = tiny_directory();
    let (wasm, compressed) = (directory.path().join("pyodide.asm.wasm"), directory.path().join("pyodide.asm.wasm.zst"));
    fs::remove_file(wasm).unwrap();
    let files = RuntimeFiles::in_directory(&TINY, directory.path());
    fs::write(&compressed, zstd::encode_all(&b"wasm"[..], 1).unwrap()).unwrap();
    assert_eq!(files.read(RuntimeFile::Wasm).unwrap(), b"wasm");
    for changed in [&b"WASM"[..], b"wasm and more"] {
        fs::write(&compressed, zstd::encode_all(changed, 1).unwrap()).unwrap();
        let error = files.read(RuntimeFile::Wasm).unwrap_err();
        assert!(matches!(error, RuntimeError::Changed { problem: FileProblem::Mismatch(_), .. }), "{error}");
    }
    fs::remove_file(&compressed).unwrap();
    let error = files.read(RuntimeFile::Wasm).unwrap_err();
    assert!(matches!(error, RuntimeError::Changed { problem: FileProblem::Unreadable(_), .. }), "{error}");
}
