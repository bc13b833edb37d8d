//! Tests of the installed paths of valid wheels' files.

use crate::forge::{Entry, Forge, zip};

const SITE: &str = "lib/python3.14/site-packages";

#[test]
fn files_are_installed_by_their_path_in_the_wheel() {
    let directory = tempfile::tempdir().unwrap();
    let forge = Forge::new("thing", "1.0")
        .file("thing/data/table.csv", b"a,b\n")
        .file("thing-1.0.data/platlib/_thing.cpython-314-wasm32-emscripten.so", b"\0asm\x01\0\0\0")
        .file("thing-1.0.data/purelib/extra.py", b"")
        .file("thing-1.0.data/data/share/thing/manual.txt", b"read me")
        .file("thing-1.0.data/scripts/run-thing", b"#!python -E\nprint(1)\n")
        .file("thing-1.0.data/scripts/native", b"\x7fELF\0\0")
        .file("thing-1.0.data/headers/thing.h", b"")
        .info("entry_points.txt", b"[console_scripts]\nthing = thing.cli:main\n")
        .info("INSTALLER", b"pip\n");
    let unpacked = forge.wheel(directory.path()).unpack().unwrap();
    let paths: Vec<_> = unpacked.files.iter().map(|file| file.path.strip_prefix(SITE).unwrap_or(&file.path)).collect();
    assert_eq!(
        paths,
        [
            "bin/run-thing",
            "bin/thing",
            "/_thing.cpython-314-wasm32-emscripten.so",
            "/extra.py",
            "/thing-1.0.dist-info/INSTALLER",
            "/thing-1.0.dist-info/METADATA",
            "/thing-1.0.dist-info/RECORD",
            "/thing-1.0.dist-info/WHEEL",
            "/thing-1.0.dist-info/entry_points.txt",
            "/thing/__init__.py",
            "/thing/data/table.csv",
            "share/thing/manual.txt",
        ]
    );
    assert_eq!(unpacked.top_level, ["_thing", "extra", "thing"]);
    let content = |end: &str| {
        let file = unpacked.files.iter().find(|file| file.path.ends_with(end)).unwrap();
        String::from_utf8_lossy(&file.bytes).into_owned()
    };
    assert_eq!(content("INSTALLER"), "belljar\n");
    assert_eq!(content("bin/run-thing"), "#!/usr/bin/env python3\nprint(1)\n");
    assert!(content("bin/thing").contains("from thing.cli import main"));
    assert!(content("/RECORD").contains("../../../bin/thing,sha256="), "{}", content("/RECORD"));
    let libraries: Vec<_> = unpacked.files.iter().filter(|file| file.is_library).map(|file| &file.path).collect();
    assert_eq!(libraries, [&format!("{SITE}/_thing.cpython-314-wasm32-emscripten.so")]);
}

#[test]
fn native_library_is_not_a_side_module() {
    let directory = tempfile::tempdir().unwrap();
    let forge = Forge::new("thing", "1.0").file("thing/_x.so", b"\x7fELF");
    let unpacked = forge.wheel(directory.path()).unpack().unwrap();
    assert!(unpacked.files.iter().all(|file| !file.is_library));
}

#[test]
fn zip_of_shared_libraries_is_unpacked_to_lib() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = zip(&[
        Entry::file("lib/libthing.so", b"\0asm\x01\0\0\0"),
        Entry::file("include/thing.h", b""),
        Entry::file("lib/libthing.a", b""),
    ]);
    let mut wheel = Forge::new("thing", "1.0").wheel_with_bytes(directory.path(), &bytes);
    wheel.kind = belljar_packages::FileKind::SharedLibrary;
    let unpacked = wheel.unpack().unwrap();
    let paths: Vec<_> = unpacked.files.iter().map(|file| (file.path.as_str(), file.is_library)).collect();
    assert_eq!(paths, [("lib/libthing.so", true)]);
}
