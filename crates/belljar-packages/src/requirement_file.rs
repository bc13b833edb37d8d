//! Files of requirements and of constraints, in the part of pip's format that names packages.
//!
//! Comments, continued lines and `--hash` are read. What names a place or another file (`-e`, `-r`, `--index-url`,
//! URLs, paths) is refused by name. Format: <https://pip.pypa.io/en/stable/reference/requirements-file-format/>.

use std::path::{Path, PathBuf};

use crate::requirement::{Requirement, RequirementError, shortened};

/// Largest file that is read.
const MAX_BYTES: u64 = 4 << 20;

/// A file of requirements that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RequirementFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// It is too large to be one.
    #[error("{} is larger than {} MiB", .path.display(), MAX_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },

    /// One of its lines is refused.
    #[error("line {line}: {source}")]
    Line {
        /// The line's number, from 1.
        line: usize,
        /// Why.
        source: RequirementError,
    },
}

/// Reads a file of requirements.
pub(crate) fn read(path: &Path) -> Result<Vec<Requirement>, RequirementFileError> {
    let failed = |source| RequirementFileError::Io { path: path.to_path_buf(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > MAX_BYTES {
        return Err(RequirementFileError::TooLarge { path: path.to_path_buf() });
    }
    parse(&std::fs::read_to_string(path).map_err(failed)?)
}

impl Requirement {
    /// Reads a file of requirements or of constraints, as `--requirements` and `--constraints` name it.
    pub fn parse_file(path: &Path) -> Result<Vec<Self>, RequirementFileError> {
        read(path)
    }

    /// Reads the text of a file of requirements.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, RequirementFileError> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<Vec<Requirement>, RequirementFileError> {
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
        let requirement = parse_line(line).map_err(|source| RequirementFileError::Line { line: index + 1, source })?;
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
            // Weaker and rarer algorithms than sha256 are not compared; a line that has only those is refused below.
            Some(digest) if digest.contains(':') => requirement.hashes.push(digest),
            _ => {
                return Err(RequirementError::Option {
                    requirement: shortened(&format!("--{option}")),
                    hint: "of pip's options per requirement only --hash is understood",
                });
            }
        }
    }
    if !requirement.hashes.iter().any(|digest| digest.starts_with("sha256:")) {
        return Err(RequirementError::Malformed {
            requirement: shortened(line),
            reason: "none of its hashes is a sha256".to_owned(),
        });
    }
    Ok(requirement)
}

/// pip takes `#` for the start of a comment at the beginning of a line or after white space.
fn without_comment(line: &str) -> &str {
    let mut before = ' ';
    for (index, character) in line.char_indices() {
        if character == '#' && before.is_whitespace() {
            return &line[..index];
        }
        before = character;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{RequirementFileError, parse};

    #[test]
    fn comments_continued_lines_and_hashes_are_read() {
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
    fn options_places_and_other_files_are_refused_with_their_line() {
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
                Err(RequirementFileError::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
