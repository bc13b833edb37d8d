//! Requirements files and constraints files, in a subset of pip's format.
//!
//! Comments, continued lines and `--hash` are supported. Lines that refer to a location or to another file (`-e`, `-r`,
//! `--index-url`, URLs, paths) are refused with an error.
//! Format: <https://pip.pypa.io/en/stable/reference/requirements-file-format/>.

use std::path::{Path, PathBuf};

use crate::error::GeneralHint;
use crate::requirement::{Requirement, RequirementError, truncate_for_message};

/// The maximum size of a file.
const MAX_BYTES: u64 = 4 << 20;

/// An error in a requirements file.
#[derive(Debug, thiserror::Error)]
pub enum RequirementsFileError {
    /// The file cannot be read.
    #[error("failed to read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// The file exceeds the maximum size.
    #[error("{} is larger than {} MiB", .path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },

    /// A line is refused.
    #[error("line {line}: {source}")]
    Line {
        /// The line number, starting at 1.
        line: usize,
        /// The reason.
        source: RequirementError,
    },
}

impl GeneralHint for RequirementsFileError {
    fn general_hint(&self) -> Option<String> {
        match self {
            RequirementsFileError::Line { source, .. } => source.general_hint(),
            RequirementsFileError::Io { .. } | RequirementsFileError::TooLarge { .. } => None,
        }
    }
}

/// Reads a requirements file.
pub(crate) fn read(path: &Path) -> Result<Vec<Requirement>, RequirementsFileError> {
    let failed = |source| RequirementsFileError::Io { path: path.to_path_buf(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(RequirementsFileError::TooLarge { path: path.to_path_buf() });
    }
    parse(&std::fs::read_to_string(path).map_err(failed)?)
}

impl Requirement {
    /// Reads a requirements file or a constraints file.
    pub fn parse_file(path: &Path) -> Result<Vec<Self>, RequirementsFileError> {
        read(path)
    }

    /// Parses the text of a requirements file.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, RequirementsFileError> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<Vec<Requirement>, RequirementsFileError> {
    let mut requirements = Vec::new();
    let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let mut logical = first.to_owned();
        while logical.ends_with('\\') {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(next),
                None => break,
            }
        }
        let line = without_comment(&logical).trim();
        if line.is_empty() {
            continue;
        }
        let requirement = parse_line(line).map_err(|source| RequirementsFileError::Line { line: index + 1, source })?;
        requirements.push(requirement);
    }
    Ok(requirements)
}

fn parse_line(line: &str) -> Result<Requirement, RequirementError> {
    let Some((text, options)) = line.split_once(" --") else { return Requirement::parse(line) };
    let mut requirement = Requirement::parse(text)?;
    for option in options.split(" --") {
        let digest = option
            .trim()
            .strip_prefix("hash=")
            .or_else(|| option.trim().strip_prefix("hash "))
            .map(|digest| digest.trim().to_ascii_lowercase());
        match digest {
            // Other algorithms than SHA-256 are not compared. A line that has only those is refused below.
            Some(digest) if digest.contains(':') => requirement.hashes.push(digest),
            _ => {
                return Err(RequirementError::OptionOfRequirement {
                    option: truncate_for_message(&format!("--{option}")),
                });
            }
        }
    }
    if !requirement.hashes.iter().any(|digest| digest.starts_with("sha256:")) {
        return Err(RequirementError::Malformed {
            requirement: truncate_for_message(line),
            reason: "none of its hashes is a sha256".to_owned(),
        });
    }
    Ok(requirement)
}

/// Returns a line without its comment. As in pip, `#` starts a comment at the beginning of a line or after white space.
fn without_comment(line: &str) -> &str {
    let mut previous = ' ';
    for (index, character) in line.char_indices() {
        if character == '#' && previous.is_whitespace() {
            return &line[..index];
        }
        previous = character;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{RequirementsFileError, parse};

    #[test]
    fn comments_continued_lines_and_hashes_are_parsed() {
        let sha256 = "a".repeat(64);
        let text = format!(
            "# tools\nrich<13  # no later\n\nattrs==25.1 \\\n    --hash=sha256:{sha256} \\\n    --hash=sha256:{sha256}\n"
        );
        let requirements = parse(&text).unwrap();
        let names: Vec<_> = requirements.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["rich<13", "attrs==25.1"]);
        assert_eq!(requirements[1].hashes.len(), 2);
    }

    #[test]
    fn refused_lines_are_reported_with_their_line_number() {
        for (text, line) in [
            ("rich\n--index-url https://example.org\n", 2),
            ("-e .\n", 1),
            ("\n\n-r other.txt", 3),
            ("x @ https://example.org/x.whl", 1),
            ("./x.whl", 1),
            ("rich --config-settings=a", 1),
            ("rich==1 --hash=md5:00", 1),
        ] {
            match parse(text) {
                Err(RequirementsFileError::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
