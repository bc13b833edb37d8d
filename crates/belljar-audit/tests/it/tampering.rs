//! Logs that were changed: each line changed, removed, moved, repeated and replaced.

use std::path::PathBuf;

use belljar_audit::{FileError, FileSink, ProblemKind, verify};

use super::{check, lines, set_lines, write};

/// A log of ten records, of which each test has a copy.
struct Log {
    _directory: tempfile::TempDir,
    path: PathBuf,
    lines: Vec<String>,
}

impl Log {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.log");
        write(&path, 7, None);
        let lines = lines(&path);
        assert_eq!(lines.len(), 10);
        Self { _directory: directory, path, lines }
    }

    /// Writes changed lines and returns the lines with problems.
    fn problems(&self, lines: &[String]) -> Vec<(u64, ProblemKind)> {
        set_lines(&self.path, lines);
        let found = check(std::slice::from_ref(&self.path));
        found.problems.into_iter().map(|problem| (problem.line, problem.kind)).collect()
    }
}

#[test]
fn every_changed_line_is_found() {
    let log = Log::new();
    for at in 0..log.lines.len() {
        let mut lines = log.lines.clone();
        lines[at] = lines[at].replacen("\"event\":\"", "\"event\":\"x", 1);
        let problems = log.problems(&lines);
        assert!(problems.iter().any(|(line, _)| *line == at as u64 + 1), "line {at}: {problems:?}");
    }
    assert_eq!(log.problems(&log.lines), []);
}

#[test]
fn every_changed_byte_is_found() {
    let log = Log::new();
    let bytes = std::fs::read(&log.path).unwrap();
    for at in 0..bytes.len() - 1 {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        std::fs::write(&log.path, changed).unwrap();
        assert!(!check(std::slice::from_ref(&log.path)).is_intact(), "byte {at}");
    }
}

#[test]
fn every_removed_line_but_the_last_is_found() {
    let log = Log::new();
    for at in 0..log.lines.len() - 1 {
        let mut lines = log.lines.clone();
        lines.remove(at);
        assert!(!log.problems(&lines).is_empty(), "line {at}");
    }
}

#[test]
fn removed_end_is_found_with_a_hash_that_was_noted() {
    let log = Log::new();
    let head = check(std::slice::from_ref(&log.path)).head.unwrap();
    for count in 1..log.lines.len() {
        set_lines(&log.path, &log.lines[..count]);
        let found = verify(std::slice::from_ref(&log.path), Some(&head)).unwrap();
        assert!(!found.is_intact() && !found.is_complete, "{count} lines: {found:?}");
        // Without that hash, nothing but the missing record of the server's end shows it.
        assert!(check(std::slice::from_ref(&log.path)).is_intact());
    }
    set_lines(&log.path, &log.lines);
    assert!(verify(std::slice::from_ref(&log.path), Some(&head)).unwrap().is_intact());
}

#[test]
fn every_swap_and_repetition_is_found() {
    let log = Log::new();
    for one in 0..log.lines.len() {
        for other in one + 1..log.lines.len() {
            let mut lines = log.lines.clone();
            lines.swap(one, other);
            assert!(!log.problems(&lines).is_empty(), "{one} and {other}");
        }
        let mut lines = log.lines.clone();
        lines.insert(one, log.lines[one].clone());
        assert!(!log.problems(&lines).is_empty(), "{one} twice");
    }
}

#[test]
fn line_of_another_log_is_found() {
    let (log, other) = (Log::new(), Log::new());
    for at in 0..log.lines.len() {
        let mut lines = log.lines.clone();
        lines[at].clone_from(&other.lines[at]);
        assert!(!log.problems(&lines).is_empty(), "line {at}");
    }
}

#[test]
fn inserted_text_is_found() {
    let log = Log::new();
    for text in ["", "x", "{}", "{\"seq\":5}"] {
        let mut lines = log.lines.clone();
        lines.insert(4, text.into());
        assert_eq!(log.problems(&lines), [(5, ProblemKind::NotARecord)], "{text:?}");
    }
}

#[test]
fn text_before_a_record_is_found_whatever_its_length() {
    let log = Log::new();
    // The longest line that is read at once: the record after it is read as a line of its own.
    for length in [1, 4 << 20] {
        let mut lines = log.lines.clone();
        lines[4] = format!("{}{}", "x".repeat(length), lines[4]);
        let problems = log.problems(&lines);
        assert!(problems.contains(&(5, ProblemKind::NotARecord)), "{length}: {problems:?}");
    }
}

#[test]
fn one_recovery_does_not_explain_two_lines() {
    let log = Log::new();
    std::fs::write(&log.path, format!("{}\n{{\"seq\":2,", log.lines[0])).unwrap();
    write(&log.path, 1, None);
    let mut lines = lines(&log.path);
    assert_eq!(lines[1], "{\"seq\":2,");
    assert_eq!(log.problems(&lines), []);
    lines.insert(1, lines[1].clone());
    assert_eq!(log.problems(&lines), [(2, ProblemKind::NotARecord)]);
}

#[test]
fn first_lines_that_are_not_records_are_reported() {
    let log = Log::new();
    let other = (0..3_000).map(|number| format!("line {number}"));
    let lines: Vec<String> = log.lines.iter().cloned().chain(other).collect();
    let problems = log.problems(&lines);
    assert_eq!((problems.len(), problems[0].0, problems[999].0), (1_000, 11, 1_010));
}

#[test]
fn largest_number_is_not_a_record() {
    let log = Log::new();
    let numbered = |line: &String| line.replacen("{\"seq\":1,", &format!("{{\"seq\":{},", u64::MAX), 1);
    let mut lines = vec![numbered(&log.lines[0])];
    lines.extend_from_slice(&log.lines[1..]);
    let problems = log.problems(&lines);
    assert!(problems.contains(&(1, ProblemKind::NotARecord)), "{problems:?}");
    // No record could follow it.
    set_lines(&log.path, &lines[..1]);
    assert!(matches!(FileSink::open(&log.path, None), Err(FileError::NotALog(_))));
}

#[test]
fn removed_changed_and_exchanged_files_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = super::start(&path, Some(2_000));
    let size = || -> u64 {
        let files = std::fs::read_dir(directory.path()).unwrap();
        files.map(|file| file.unwrap().metadata().map_or(0, |metadata| metadata.len())).sum()
    };
    for at in 0..60 {
        let before = size();
        audit.record(|| super::record(&format!("file {at}")));
        // Files begin between batches: each record is one.
        super::failures::wait_for("the write", || size() != before);
    }
    audit.close(super::stop_record);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    assert!(check(&files).is_intact());
    // The current file has no number, and is the last.
    let (current, rotated) = files.split_first().unwrap();
    let without_middle = [&rotated[..1], &rotated[2..], std::slice::from_ref(current)].concat();
    assert!(!check(&without_middle).is_intact());
    let without_first = [&rotated[1..], std::slice::from_ref(current)].concat();
    let found = check(&without_first);
    assert!(found.is_intact() && found.first > Some(1), "earlier files may be archived: {found:?}");
    let cut = lines(&rotated[1]);
    set_lines(&rotated[1], &cut[1..]);
    assert!(check(&files).problems.iter().any(|problem| problem.kind == ProblemKind::NoBeginning));
}
