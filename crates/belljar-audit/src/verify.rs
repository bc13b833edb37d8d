//! Verification of log files.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::chain::{ChainedLine, Hash};
use crate::digest::sha256;
use crate::event::Event;

/// The maximum length of a line, in bytes. Records are shorter.
const MAX_LINE: u64 = 4 << 20;
/// The maximum number of problems that are reported.
const MAX_PROBLEMS: usize = 1_000;
/// The maximum number of parts of lines that wait for the record of their recovery. A log has that record as the next
/// line, so that more of them are not what crashes leave.
const MAX_FRAGMENTS: usize = 1_000;
/// The maximum number of a record: larger integers are not exact in all readers of JSON.
const MAX_NUMBER: u64 = 1 << 53;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The number of records.
    pub records: u64,
    /// The number of the first record. If it is not 1, earlier files are not among those that were verified.
    pub first: Option<u64>,
    /// The number of the last record.
    pub last: Option<u64>,
    /// The hash of the last record.
    pub head: Option<String>,
    /// The places where the chain is broken, at most a thousand.
    pub problems: Vec<Problem>,
    /// Parts of lines that a crash has left, each with the record of its recovery.
    pub recovered: u64,
    /// The number of bytes of a part of a line at the end, as after a crash, if there is one.
    pub cut_bytes: Option<u64>,
    /// True if the last record is that of a server's end. Otherwise the server runs, it has crashed, or records are
    /// missing at the end.
    pub is_complete: bool,
    /// True if the hash that the caller knows is that of a record; `None` without one.
    pub has_known_hash: Option<bool>,
}

impl Verification {
    /// Returns whether the chain holds.
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty() && self.has_known_hash != Some(false)
    }
}

/// A place where the chain is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: u64,
    /// The kind of the problem.
    pub kind: ProblemKind,
}

/// A kind of problem with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// The line has the number that follows, but not its hash: the line was changed.
    Changed {
        /// The record's number.
        number: u64,
    },
    /// Records are missing before the line, or lines are in another order.
    OutOfOrder {
        /// The record's number.
        number: u64,
        /// The number that was expected.
        expected: u64,
    },
    /// The line is not a record.
    NotARecord,
    /// The first line of a file does not say which record it follows: lines before it were removed.
    NoBeginning,
    /// The file ends with a part of a line, but another file follows.
    Cut,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        match &self.kind {
            ProblemKind::Changed { number } => write!(f, "record {number} was changed, or the one before it"),
            ProblemKind::OutOfOrder { number, expected } if number > expected => {
                write!(f, "record {number} is where {expected} is expected: records are missing or in another order")
            }
            ProblemKind::OutOfOrder { number, expected } => {
                write!(f, "record {number} is where {expected} is expected: records were repeated or moved")
            }
            ProblemKind::NotARecord => f.write_str("the line is not a record"),
            ProblemKind::NoBeginning => f.write_str("the file does not begin with audit.open: lines were removed"),
            ProblemKind::Cut => f.write_str("the file ends with a part of a line, but another file follows"),
        }
    }
}

/// The fields of a record that verification reads.
#[derive(Deserialize)]
struct Fields {
    seq: u64,
    event: String,
    previous: Option<String>,
    target: Option<String>,
}

impl Fields {
    /// Parses a line. Returns `None` if it is not a record.
    fn parse(line: &str) -> Option<Self> {
        // The number after the largest one would overflow.
        serde_json::from_str::<Self>(line).ok().filter(|fields| fields.seq < MAX_NUMBER)
    }
}

/// Returns the number of the record in a line.
pub(crate) fn number_of(line: &str) -> Option<u64> {
    Fields::parse(line).map(|fields| fields.seq)
}

/// The position in the chain.
struct Position {
    number: u64,
    hash: Hash,
}

struct Verifier<'a> {
    known: Option<&'a str>,
    position: Option<Position>,
    found: Verification,
    /// Lines that are not records, by their hashes: a later record may name them.
    fragments: HashMap<String, (PathBuf, u64)>,
}

/// Verifies the files of one log, in the order of their records. If `known` is a hash that was noted earlier, one of
/// the records must have it.
///
/// # Errors
/// Fails if a file cannot be read.
pub fn verify(files: &[PathBuf], known: Option<&str>) -> io::Result<Verification> {
    let mut ordered = Vec::new();
    for path in files {
        let mut lines = Lines::open(path)?;
        let mut first = u64::MAX;
        while let Some(line) = lines.next()? {
            if let Some(number) = std::str::from_utf8(&line.bytes).ok().and_then(number_of) {
                first = number;
                break;
            }
        }
        ordered.push((first, path));
    }
    ordered.sort();
    let found = Verification {
        records: 0,
        first: None,
        last: None,
        head: None,
        problems: Vec::new(),
        recovered: 0,
        cut_bytes: None,
        is_complete: false,
        has_known_hash: known.map(|_| false),
    };
    let mut verifier = Verifier { known, position: None, found, fragments: HashMap::new() };
    let count = ordered.len();
    for (at, (_, path)) in ordered.into_iter().enumerate() {
        verifier.file(path, at + 1 == count)?;
    }
    verifier.report_fragments();
    if let Some(Position { number, hash }) = verifier.position {
        verifier.found.last = Some(number);
        verifier.found.head = Some(hash.to_string());
    }
    Ok(verifier.found)
}

impl Verifier<'_> {
    fn file(&mut self, path: &Path, is_last: bool) -> io::Result<()> {
        let mut lines = Lines::open(path)?;
        let mut is_first = true;
        while let Some(Line { bytes, is_complete, number }) = lines.next()? {
            let text = std::str::from_utf8(&bytes).ok();
            let parsed = text.and_then(|text| Some((ChainedLine::parse(text)?, Fields::parse(text)?)));
            let Some((parsed_line, fields)) = parsed else {
                match (is_complete, is_last) {
                    (true, _) => self.fragment(path, number, &bytes),
                    (false, true) => self.found.cut_bytes = Some(bytes.len() as u64),
                    (false, false) => self.problem(path, number, ProblemKind::Cut),
                }
                continue;
            };
            self.record(path, number, &parsed_line, &fields, std::mem::take(&mut is_first));
        }
        Ok(())
    }

    fn record(&mut self, path: &Path, line: u64, parsed_line: &ChainedLine<'_>, fields: &Fields, is_first: bool) {
        let begins = fields.event == Event::AuditOpen.name();
        let stated = fields.previous.as_deref().and_then(Hash::parse).filter(|_| begins);
        if is_first && stated.is_none() {
            self.problem(path, line, ProblemKind::NoBeginning);
        }
        let expected = self.position.as_ref().map(|position| position.number + 1);
        // The first file goes on from a hash that is not among the files.
        let previous = self.position.as_ref().map(|position| position.hash).or(stated);
        let follows = previous.is_some_and(|previous| parsed_line.follows(previous));
        match expected {
            Some(expected) if expected != fields.seq => {
                self.problem(path, line, ProblemKind::OutOfOrder { number: fields.seq, expected });
            }
            _ if !follows && (previous.is_some() || !is_first) => {
                self.problem(path, line, ProblemKind::Changed { number: fields.seq });
            }
            _ => {}
        }
        if fields.event == Event::AuditRecover.name()
            && let Some(digest) = &fields.target
            && self.fragments.remove(digest).is_some()
        {
            self.found.recovered += 1;
        }
        self.found.records += 1;
        self.found.first.get_or_insert(fields.seq);
        self.found.is_complete = fields.event == Event::ServerStop.name();
        if self.known.is_some_and(|known| known == parsed_line.hash.to_string()) {
            self.found.has_known_hash = Some(true);
        }
        self.position = Some(Position { number: fields.seq, hash: parsed_line.hash });
    }

    /// Notes a line that is not a record. A record of a recovery explains one line, so that a second one with the same
    /// contents is a problem.
    fn fragment(&mut self, file: &Path, line: u64, bytes: &[u8]) {
        if self.fragments.len() >= MAX_FRAGMENTS {
            self.report_fragments();
        }
        if let Some((file, line)) = self.fragments.insert(sha256(bytes), (file.to_owned(), line)) {
            self.problem(&file, line, ProblemKind::NotARecord);
        }
    }

    /// Reports the lines that no record of a recovery has explained.
    fn report_fragments(&mut self) {
        let mut left: Vec<_> = self.fragments.drain().map(|(_, place)| place).collect();
        left.sort();
        for (file, line) in left {
            self.problem(&file, line, ProblemKind::NotARecord);
        }
    }

    fn problem(&mut self, file: &Path, line: u64, kind: ProblemKind) {
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push(Problem { file: file.to_owned(), line, kind });
        }
    }
}

/// The lines of a file.
pub(crate) struct Lines {
    reader: BufReader<File>,
    number: u64,
}

/// A line of a file, or a part of one that is longer than records are.
pub(crate) struct Line {
    pub(crate) bytes: Vec<u8>,
    /// False for the end of a file without a line break: the part of a line that a crash has left.
    pub(crate) is_complete: bool,
    pub(crate) number: u64,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("failed to open {}: {error}", path.display()));
        Ok(Self { reader: BufReader::new(File::open(path).map_err(named)?), number: 0 })
    }

    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        let mut bytes = Vec::new();
        if self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let has_end = bytes.last() == Some(&b'\n');
        // A part of a longer line is not what a crash leaves, even if what follows it is a record.
        let is_complete = has_end || bytes.len() as u64 >= MAX_LINE;
        if has_end {
            bytes.pop();
        }
        Ok(Some(Line { bytes, is_complete, number: self.number }))
    }
}
