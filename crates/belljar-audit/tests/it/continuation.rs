//! A log that goes on: after its process has ended, and after a crash in the middle of a line.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use belljar_audit::{Details, Event, FileError, FileSink, Filter, Record, earliest_time, records};

use super::{check, lines, record, start, stop_record, write};

#[test]
fn chain_goes_on_in_the_next_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    for processes in 1..4 {
        write(&path, 2, None);
        let found = check(std::slice::from_ref(&path));
        assert!(found.is_intact() && found.is_complete, "{found:?}");
        assert_eq!(found.records, 1 + processes * 4);
    }
}

#[test]
fn runs_of_several_processes_have_names_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let mut names = Vec::new();
    for _ in 0..2 {
        let audit = start(&path, None);
        for run in [audit.next_run(), audit.next_run()] {
            audit.record(|| Record::new(Event::RunEnd, Details { run: Some(run), ..Details::default() }));
            names.push(run.to_string());
        }
        audit.close(stop_record);
    }
    // Records 2 and 6 are those of the starts.
    assert_eq!(names, ["2.1", "2.2", "6.1", "6.2"]);
    let mut found = Vec::new();
    let filter = Filter { run: Some("6.1".into()), ..Filter::default() };
    records(&[path], &filter, |_, record| {
        found.push(record["seq"].clone());
        Ok(())
    })
    .unwrap();
    assert_eq!(found, [7]);
}

#[test]
fn every_cut_of_the_last_line_is_a_crash_and_the_chain_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    write(&path, 3, None);
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in (last + 1..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..end]).unwrap();
        let found = check(std::slice::from_ref(&path));
        let is_whole_record = end == whole.len() - 1;
        assert!(found.is_intact(), "{end}: {found:?}");
        assert_eq!(found.cut_bytes, (!is_whole_record).then_some((end - last) as u64));
        write(&path, 1, None);
        let found = check(std::slice::from_ref(&path));
        assert!(found.is_intact() && found.is_complete, "{end}: {found:?}");
        assert_eq!((found.recovered, found.cut_bytes), (u64::from(!is_whole_record), None));
    }
}

#[test]
fn cut_of_the_first_line_is_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    write(&path, 0, None);
    let first = lines(&path)[0].clone();
    std::fs::write(&path, &first[..60]).unwrap();
    write(&path, 1, None);
    let found = check(&[path]);
    assert_eq!((found.recovered, found.problems.len()), (1, 0), "{found:?}");
}

/// Returns the files of a directory, in the order of their names.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn file_without_records_goes_on_from_the_rotated_files() {
    // A crash after the rename of a full file: the next one does not exist, is empty, or has a part of its first line.
    for begun in [None, Some(""), Some("{\"s"), Some("{\"seq\":12,\"time\":\"2026-11-23T")] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        for _ in 0..3 {
            write(&path, 2, Some(1));
        }
        let count = files(directory.path()).len();
        assert!(count > 2, "{count} files");
        // The first files may be archived, and have others that are newer in their place.
        let (first, archived) = (directory.path().join("audit.log.000001"), directory.path().join("archived"));
        std::fs::rename(&first, &archived).unwrap();
        std::fs::rename(&path, &first).unwrap();
        if let Some(begun) = begun {
            std::fs::write(&path, begun).unwrap();
        }
        write(&path, 1, None);
        let found = check(&files(directory.path()));
        assert!(found.is_intact() && found.is_complete, "{begun:?}: {found:?}");
        assert_eq!(found.first, Some(1));
        assert_eq!(found.recovered, u64::from(begun.is_some_and(|begun| !begun.is_empty())), "{begun:?}");
    }
}

#[test]
fn part_of_a_line_without_its_record_is_a_problem() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    write(&path, 3, None);
    let mut lines = lines(&path);
    lines.insert(2, "{\"seq\":9,\"ti".into());
    super::set_lines(&path, &lines);
    assert_eq!(check(&[path]).problems.len(), 1);
}

#[test]
fn other_files_and_files_in_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    std::fs::write(&path, "my notes\n").unwrap();
    assert!(matches!(FileSink::open(&path, None), Err(FileError::NotALog(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
    let path = directory.path().join("audit.log");
    let audit = start(&path, None);
    assert!(matches!(FileSink::open(&path, None), Err(FileError::InUse(_))));
    audit.close(stop_record);
}

#[cfg(unix)]
#[test]
fn file_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    write(&path, 0, None);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn filters_select_records_of_broken_logs_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = start(&path, None);
    audit.record(|| record("a"));
    audit.record(|| {
        let mut record = record("b");
        record.details.session = Some(belljar_audit::Identifier::for_secret("the-session"));
        record
    });
    audit.close(stop_record);
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"not a record\n").unwrap();
    let found = |filter: &Filter| {
        let mut events = Vec::new();
        records(std::slice::from_ref(&path), filter, |_, record| {
            events.push(record["event"].as_str().unwrap().to_owned());
            Ok(())
        })
        .unwrap();
        events
    };
    assert_eq!(found(&Filter::default()).len(), 5);
    let session = Filter { session: Some("the-session".into()), ..Filter::default() };
    assert_eq!(found(&session), ["file.read"]);
    // The digest, and the beginnings that the console and `belljar audit show` print.
    let digest = belljar_audit::digest("the-session");
    for (name, count) in [(&digest[..], 1), (&digest[..16], 1), (&digest[..12], 1), ("0000", 0), ("", 0)] {
        assert_eq!(found(&Filter { session: Some(name.into()), ..Filter::default() }).len(), count, "{name}");
    }
    let events = Filter { events: vec!["server".into(), "audit.open".into()], ..Filter::default() };
    assert_eq!(found(&events), ["audit.open", "server.start", "server.stop"]);
    let since = |text: &str| Filter { since: Some(earliest_time(text).unwrap()), ..Filter::default() };
    assert_eq!(found(&since("1h")).len(), 5);
    assert_eq!(found(&since("2100-01-01")).len(), 0);
    assert_eq!(found(&since("2020-01-01T00:00:00Z")).len(), 5);
    assert!(earliest_time("yesterday").is_err());
}
