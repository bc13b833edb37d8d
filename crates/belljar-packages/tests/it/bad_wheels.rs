//! Wheels that are wrong in one way each, and refused for it.

use belljar_packages::WheelError;

use crate::forge::{Entry, Forge, zip};

fn forge() -> Forge {
    Forge::new("thing", "1.0")
}

/// The error that a wheel is refused with, and its text.
fn refusal(forge: &Forge) -> (WheelError, String) {
    refusal_of(forge, &forge.bytes())
}

fn refusal_of(forge: &Forge, bytes: &[u8]) -> (WheelError, String) {
    let directory = tempfile::tempdir().unwrap();
    let error = forge.wheel_of(directory.path(), bytes).unpack().expect_err("the wheel is taken");
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
fn the_wheel_that_the_others_are_made_from_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let unpacked = forge().wheel(directory.path()).unpack().unwrap();
    assert_eq!(unpacked.top_level, ["thing"]);
}

#[test]
fn a_wheel_with_a_traversing_path_is_refused() {
    for name in ["../evil.py", "thing/../../evil.py", "thing/..", "./thing.py", "thing//x.py"] {
        path_refusal(Entry::file(name, b""));
    }
}

#[test]
fn a_wheel_with_an_absolute_path_is_refused() {
    for name in ["/etc/passwd", "C:/x.py", "C:x.py"] {
        path_refusal(Entry::file(name, b""));
    }
}

#[test]
fn a_wheel_with_a_backslash_in_a_path_is_refused() {
    assert!(path_refusal(Entry::file("thing\\x.py", b"")).contains("backslash"));
}

#[test]
fn a_wheel_with_nul_or_control_characters_in_a_path_is_refused() {
    assert!(path_refusal(Entry::file("thing/x\0.py", b"")).contains("NUL"));
    assert!(path_refusal(Entry::file("thing/x\n.py", b"")).contains("control"));
}

#[test]
fn a_wheel_with_a_name_that_is_not_utf8_is_refused() {
    let entry = Entry { name: b"thing/\xff.py".to_vec(), ..Entry::file("", b"") };
    assert!(refusal(&forge().entry(entry)).1.contains("UTF-8"));
}

#[test]
fn a_wheel_with_a_symbolic_link_or_a_device_is_refused() {
    for mode in [0o120_777, 0o020_666, 0o060_666, 0o010_644, 0o140_755] {
        let text = path_refusal(Entry { mode, ..Entry::file("thing/link", b"/etc/passwd") });
        assert!(text.contains("link or a device"), "{text}");
    }
}

#[test]
fn a_wheel_with_one_file_twice_is_refused() {
    assert!(path_refusal(Entry::file("thing/__init__.py", b"answer = 43\n")).contains("twice"));
}

#[test]
fn a_wheel_with_names_that_differ_in_case_alone_is_refused() {
    for name in ["thing/__INIT__.py", "Thing/other.py"] {
        assert!(path_refusal(Entry::file(name, b"")).contains("case"));
    }
}

#[test]
fn a_wheel_with_a_file_that_is_also_a_directory_is_refused() {
    assert!(path_refusal(Entry::file("thing", b"")).contains("file and a directory"));
    assert!(path_refusal(Entry::file("thing/__init__.py/x", b"")).contains("file and a directory"));
    let directory = Entry { mode: 0o040_755, ..Entry::file("other", b"") };
    assert!(path_refusal(directory).contains("file and a directory"));
}

#[test]
fn a_wheel_with_an_encrypted_entry_is_refused() {
    assert!(path_refusal(Entry { flags: 1, ..Entry::file("thing/x.py", b"") }).contains("encrypted"));
}

#[test]
fn a_wheel_with_an_unusual_compression_is_refused() {
    assert!(path_refusal(Entry { method: Some(14), ..Entry::file("thing/x.py", b"abc") }).contains("method 14"));
}

#[test]
fn a_wheel_whose_directory_and_entries_disagree_is_refused() {
    let entry = Entry { local_name: Some(b"thing/y.py".to_vec()), ..Entry::file("thing/x.py", b"") };
    assert!(path_refusal(entry).contains("disagree"));
}

#[test]
fn a_wheel_with_overlapping_entries_is_refused() {
    // Both names of the directory point to one entry, as in bombs that reuse their data.
    let first = Entry::file("thing/a.py", b"x = 1\n");
    let second = Entry { at: Some(1), local_name: None, ..Entry::file("thing/a.py", b"x = 1\n") };
    let mut entries = forge().all_entries();
    entries.insert(1, first);
    entries.insert(2, second);
    let (_, text) = refusal_of(&forge(), &zip(&entries));
    assert!(text.contains("twice") || text.contains("overlap"), "{text}");
    // With names that differ it is the data that tell: the second entry lies within the first one's data.
    let inner = zip(&[Entry { deflated: false, ..Entry::file("thing/b.py", b"y") }]);
    let outer = Entry { deflated: false, ..Entry::file("thing/a.bin", &inner) };
    let mut entries = vec![outer, Entry { deflated: false, ..Entry::file("thing/b.py", b"y") }];
    entries.extend(forge().all_entries());
    let mut bytes = zip(&entries);
    // The directory's record of `b.py` is made to point to the entry within `a.bin`.
    let within = 30 + "thing/a.bin".len() as u32;
    let record = bytes.windows(10).rposition(|window| window == b"thing/b.py").unwrap();
    bytes[record - 4..record].copy_from_slice(&within.to_le_bytes());
    let (error, text) = refusal_of(&forge(), &bytes);
    assert!(matches!(error, WheelError::Archive { .. }) && text.contains("overlap"), "{text}");
}

#[test]
fn a_wheel_that_unpacks_to_far_more_than_its_size_is_refused() {
    let (error, text) = refusal(&forge().file("thing/zeros.bin", &vec![0; 80 << 20]));
    assert!(matches!(error, WheelError::TooLarge { .. }), "{text}");
}

#[test]
fn a_wheel_that_claims_more_than_is_allowed_is_refused_before_unpacking() {
    let entry = Entry { claimed: Some(u32::MAX - 1), ..Entry::file("thing/x.bin", b"x") };
    let (error, text) = refusal(&forge().entry(entry));
    assert!(matches!(error, WheelError::TooLarge { .. }), "{text}");
}

#[test]
fn a_wheel_with_another_size_than_it_claims_is_refused() {
    for claimed in [1, 100] {
        let entry = Entry { claimed: Some(claimed), ..Entry::file("thing/x.bin", &[7; 50]) };
        let (error, text) = refusal(&forge().entry(entry));
        assert!(matches!(error, WheelError::Archive { .. }), "{text}");
    }
}

#[test]
fn a_wheel_with_bytes_after_its_end_is_refused() {
    let mut bytes = forge().bytes();
    bytes.extend(b"more");
    let (error, text) = refusal_of(&forge(), &bytes);
    assert!(matches!(error, WheelError::Archive { .. }), "{text}");
}

#[test]
fn a_truncated_wheel_and_what_is_no_archive_are_refused() {
    let bytes = forge().bytes();
    for bytes in [&bytes[..bytes.len() / 2], b"not a zip", b""] {
        let (error, text) = refusal_of(&forge(), bytes);
        assert!(matches!(error, WheelError::Archive { .. }), "{text}");
    }
}

#[test]
fn a_wheel_with_a_flipped_bit_is_refused_wherever_it_is() {
    let bytes = forge().bytes();
    let directory = tempfile::tempdir().unwrap();
    let right = forge().wheel(directory.path()).unpack().unwrap();
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1;
        // Times and attributes that nobody looks at may differ; no content may.
        if let Ok(unpacked) = forge().wheel_of(directory.path(), &damaged).unpack() {
            assert_eq!(unpacked.files, right.files, "byte {position}");
        }
    }
}

#[test]
fn a_wheel_without_metadata_is_refused() {
    for missing in ["METADATA", "WHEEL", "RECORD"] {
        let entries: Vec<_> =
            forge().all_entries().into_iter().filter(|entry| !entry.name.ends_with(missing.as_bytes())).collect();
        let (_, text) = refusal_of(&forge(), &zip(&entries));
        assert!(text.contains(missing), "{text}");
    }
}

#[test]
fn a_wheel_whose_metadata_name_another_package_is_refused() {
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
fn a_wheel_whose_dist_info_is_of_another_package_is_refused() {
    for stem in ["other-1.0", "thing-2.0", "thing"] {
        let (error, text) = refusal(&Forge { stem: stem.to_owned(), ..forge() });
        assert!(matches!(error, WheelError::Metadata { .. }), "{text}");
    }
}

#[test]
fn a_wheel_with_two_dist_info_directories_is_refused() {
    assert!(refusal(&forge().file("other-1.0.dist-info/METADATA", b"")).1.contains("two .dist-info"));
}

#[test]
fn a_wheel_of_another_package_than_asked_for_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut wheel = forge().wheel(directory.path());
    wheel.name = "other".into();
    assert!(matches!(wheel.unpack(), Err(WheelError::Metadata { .. })));
}

#[test]
fn a_wheel_of_a_later_format_is_refused() {
    let mut entries = forge().all_entries();
    let wheel = entries.iter_mut().find(|entry| entry.name.ends_with(b"WHEEL")).unwrap();
    wheel.data = b"Wheel-Version: 2.0\n".to_vec();
    let (error, text) = refusal_of(&forge(), &zip(&entries));
    // RECORD would tell too, but the format comes first.
    assert!(matches!(error, WheelError::Metadata { .. }) && text.contains("version 2,"), "{text}");
}

#[test]
fn a_wheel_for_another_platform_or_python_is_refused() {
    for tag in ["cp314-cp314-manylinux_2_17_x86_64", "cp313-cp313-pyemscripten_2026_0_wasm32", "py2-none-any"] {
        let (error, text) = refusal(&forge().tag(tag));
        assert!(matches!(error, WheelError::Platform { .. }), "{text}");
    }
}

#[test]
fn a_wheel_whose_record_tells_another_hash_or_size_is_refused() {
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
fn a_wheel_that_misuses_its_data_directory_is_refused() {
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
