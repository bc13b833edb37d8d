//! Wheels with one defect each, which are refused with the right error.

use belljar_packages::WheelError;

use crate::forge::{Entry, Forge, zip};

fn forge() -> Forge {
    Forge::new("thing", "1.0")
}

/// Returns the error with which a wheel is refused, and its text.
fn refusal(forge: &Forge) -> (WheelError, String) {
    refusal_of_bytes(forge, &forge.bytes())
}

fn refusal_of_bytes(forge: &Forge, bytes: &[u8]) -> (WheelError, String) {
    let directory = tempfile::tempdir().unwrap();
    let error = forge.wheel_with_bytes(directory.path(), bytes).unpack().expect_err("the wheel is accepted");
    let text = error.to_string();
    assert!(text.starts_with("thing-1.0-"), "{text}");
    (error, text)
}

fn path_refusal(entry: Entry) -> String {
    let (error, text) = refusal(&forge().entry(entry));
    assert!(matches!(error, WheelError::Path { .. }), "{text}");
    text
}

#[test]
fn wheel_without_a_defect_is_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let unpacked = forge().wheel(directory.path()).unpack().unwrap();
    assert_eq!(unpacked.top_level, ["thing"]);
}

#[test]
fn traversing_path_is_refused() {
    for name in ["../evil.py", "thing/../../evil.py", "thing/..", "./thing.py", "thing//x.py"] {
        path_refusal(Entry::file(name, b""));
    }
}

#[test]
fn absolute_path_is_refused() {
    for name in ["/etc/passwd", "C:/x.py", "C:x.py"] {
        path_refusal(Entry::file(name, b""));
    }
}

#[test]
fn backslash_in_a_path_is_refused() {
    assert!(path_refusal(Entry::file("thing\\x.py", b"")).contains("backslash"));
}

#[test]
fn control_characters_in_a_path_are_refused() {
    assert!(path_refusal(Entry::file("thing/x\0.py", b"")).contains("NUL"));
    assert!(path_refusal(Entry::file("thing/x\n.py", b"")).contains("control"));
}

#[test]
fn file_name_that_is_not_utf8_is_refused() {
    let entry = Entry { name: b"thing/\xff.py".to_vec(), ..Entry::file("", b"") };
    assert!(refusal(&forge().entry(entry)).1.contains("UTF-8"));
}

#[test]
fn symbolic_links_and_devices_are_refused() {
    for mode in [0o120_777, 0o020_666, 0o060_666, 0o010_644, 0o140_755] {
        let text = path_refusal(Entry { mode, ..Entry::file("thing/link", b"/etc/passwd") });
        assert!(text.contains("link or a device"), "{text}");
    }
}

#[test]
fn duplicate_file_is_refused() {
    assert!(path_refusal(Entry::file("thing/__init__.py", b"answer = 43\n")).contains("twice"));
}

#[test]
fn names_that_differ_only_in_case_are_refused() {
    for name in ["thing/__INIT__.py", "Thing/other.py"] {
        assert!(path_refusal(Entry::file(name, b"")).contains("case"));
    }
}

#[test]
fn path_of_both_a_file_and_a_directory_is_refused() {
    assert!(path_refusal(Entry::file("thing", b"")).contains("file and a directory"));
    assert!(path_refusal(Entry::file("thing/__init__.py/x", b"")).contains("file and a directory"));
    let directory = Entry { mode: 0o040_755, ..Entry::file("other", b"") };
    assert!(path_refusal(directory).contains("file and a directory"));
}

#[test]
fn encrypted_entry_is_refused() {
    assert!(path_refusal(Entry { flags: 1, ..Entry::file("thing/x.py", b"") }).contains("encrypted"));
}

#[test]
fn unsupported_compression_is_refused() {
    assert!(path_refusal(Entry { method: Some(14), ..Entry::file("thing/x.py", b"abc") }).contains("method 14"));
}

#[test]
fn mismatch_of_zip_directory_and_entry_is_refused() {
    let entry = Entry { local_name: Some(b"thing/y.py".to_vec()), ..Entry::file("thing/x.py", b"") };
    assert!(path_refusal(entry).contains("disagree"));
}

#[test]
fn overlapping_entries_are_refused() {
    // Two records of the directory point to one entry, as in zip bombs that reuse their data.
    let first = Entry::file("thing/a.py", b"x = 1\n");
    let second = Entry { at: Some(1), local_name: None, ..Entry::file("thing/a.py", b"x = 1\n") };
    let mut entries = forge().all_entries();
    entries.insert(1, first);
    entries.insert(2, second);
    let (_, text) = refusal_of_bytes(&forge(), &zip(&entries));
    assert!(text.contains("twice") || text.contains("overlap"), "{text}");
    // With different names, the overlap of the data is detected: the second entry is inside the first one's data.
    let inner = zip(&[Entry { deflated: false, ..Entry::file("thing/b.py", b"y") }]);
    let outer = Entry { deflated: false, ..Entry::file("thing/a.bin", &inner) };
    let mut entries = vec![outer, Entry { deflated: false, ..Entry::file("thing/b.py", b"y") }];
    entries.extend(forge().all_entries());
    let mut bytes = zip(&entries);
    // Make the directory's record of `b.py` point to the entry inside `a.bin`.
    let within = 30 + "thing/a.bin".len() as u32;
    let record = bytes.windows(10).rposition(|window| window == b"thing/b.py").unwrap();
    bytes[record - 4..record].copy_from_slice(&within.to_le_bytes());
    let (error, text) = refusal_of_bytes(&forge(), &bytes);
    assert!(matches!(error, WheelError::Archive { .. }) && text.contains("overlap"), "{text}");
}

#[test]
fn excessive_compression_ratio_is_refused() {
    let (error, text) = refusal(&forge().file("thing/zeros.bin", &vec![0; 80 << 20]));
    assert!(matches!(error, WheelError::TooLarge { .. }), "{text}");
}

#[test]
fn excessive_claimed_size_is_refused_before_unpacking() {
    let entry = Entry { claimed: Some(u32::MAX - 1), ..Entry::file("thing/x.bin", b"x") };
    let (error, text) = refusal(&forge().entry(entry));
    assert!(matches!(error, WheelError::TooLarge { .. }), "{text}");
}

#[test]
fn wrong_claimed_size_is_refused() {
    for claimed in [1, 100] {
        let entry = Entry { claimed: Some(claimed), ..Entry::file("thing/x.bin", &[7; 50]) };
        let (error, text) = refusal(&forge().entry(entry));
        assert!(matches!(error, WheelError::Archive { .. }), "{text}");
    }
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = forge().bytes();
    bytes.extend(b"more");
    let (error, text) = refusal_of_bytes(&forge(), &bytes);
    assert!(matches!(error, WheelError::Archive { .. }), "{text}");
}

#[test]
fn truncated_and_invalid_archives_are_refused() {
    let bytes = forge().bytes();
    for bytes in [&bytes[..bytes.len() / 2], b"not a zip", b""] {
        let (error, text) = refusal_of_bytes(&forge(), bytes);
        assert!(matches!(error, WheelError::Archive { .. }), "{text}");
    }
}

#[test]
fn flipped_bit_never_changes_unpacked_content() {
    let bytes = forge().bytes();
    let directory = tempfile::tempdir().unwrap();
    let right = forge().wheel(directory.path()).unpack().unwrap();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1;
        // Times and unused attributes may differ, but content must not.
        if let Ok(unpacked) = forge().wheel_with_bytes(directory.path(), &damaged).unpack() {
            assert_eq!(unpacked.files, right.files, "byte {position}");
        }
    }
}

#[test]
fn missing_metadata_file_is_refused() {
    for missing in ["METADATA", "WHEEL", "RECORD"] {
        let entries: Vec<_> =
            forge().all_entries().into_iter().filter(|entry| !entry.name.ends_with(missing.as_bytes())).collect();
        let (_, text) = refusal_of_bytes(&forge(), &zip(&entries));
        assert!(text.contains(missing), "{text}");
    }
}

#[test]
fn metadata_of_another_package_is_refused() {
    for metadata in [
        "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n",
        "Metadata-Version: 2.1\nName: thing\nVersion: 2.0\n",
        "Metadata-Version: 2.1\nName: thing\n",
        "",
    ] {
        let forge = Forge { metadata: metadata.to_owned(), ..forge() };
        let (error, text) = refusal(&forge);
        assert!(matches!(error, WheelError::Metadata { .. }), "{text}");
    }
}

#[test]
fn dist_info_of_another_package_is_refused() {
    for stem in ["other-1.0", "thing-2.0", "thing"] {
        let (error, text) = refusal(&Forge { stem: stem.to_owned(), ..forge() });
        assert!(matches!(error, WheelError::Metadata { .. }), "{text}");
    }
}

#[test]
fn two_dist_info_directories_are_refused() {
    assert!(refusal(&forge().file("other-1.0.dist-info/METADATA", b"")).1.contains("two .dist-info"));
}

#[test]
fn wheel_of_another_package_than_requested_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut wheel = forge().wheel(directory.path());
    wheel.name = "other".into();
    assert!(matches!(wheel.unpack(), Err(WheelError::Metadata { .. })));
}

#[test]
fn later_wheel_format_is_refused() {
    let mut entries = forge().all_entries();
    let wheel = entries.iter_mut().find(|entry| entry.name.ends_with(b"WHEEL")).unwrap();
    wheel.data = b"Wheel-Version: 2.0\n".to_vec();
    let (error, text) = refusal_of_bytes(&forge(), &zip(&entries));
    // RECORD does not match either, but the format is checked first.
    assert!(matches!(error, WheelError::Metadata { .. }) && text.contains("version 2,"), "{text}");
}

#[test]
fn wheel_for_another_platform_or_python_is_refused() {
    for tag in ["cp314-cp314-manylinux_2_17_x86_64", "cp313-cp313-pyemscripten_2026_0_wasm32", "py2-none-any"] {
        let (error, text) = refusal(&forge().tag(tag));
        assert!(matches!(error, WheelError::Platform { .. }), "{text}");
    }
}

#[test]
fn record_with_wrong_hash_or_size_is_refused() {
    let changes: [fn(String) -> String; 6] = [
        |record| record.replace("sha256=", "sha256=A"),
        |record| record.replace(",12\n", ",13\n"),
        |record| record.replace("thing/__init__.py,", "thing/other.py,"),
        |record| record.replace("sha256=", "md5="),
        |record| record.lines().map(|line| format!("{},,\n", line.split(',').next().unwrap())).collect(),
        |record| format!("{record}thing/__init__.py,sha256=AAAA,12\n"),
    ];
    for change_record in changes {
        let (error, text) = refusal(&Forge { change_record, ..forge() });
        assert!(matches!(error, WheelError::Record { .. }), "{text}");
    }
}

#[test]
fn invalid_data_directory_is_refused() {
    for path in [
        "thing-1.0.data/elsewhere/x",
        "thing-1.0.data/x",
        "thing-1.0.data/scripts/a/b",
        "thing-1.0.data/scripts/.hidden",
        "thing-1.0.data/data/lib/python3.14/json/__init__.py",
        "thing-1.0.data/data/bin/python3",
        "thing-1.0.data/purelib/thing/__init__.py",
    ] {
        path_refusal(Entry::file(path, b"x"));
    }
    assert!(refusal(&forge().file("other-1.0.data/purelib/x.py", b"")).1.contains("other-1.0.data"));
}
