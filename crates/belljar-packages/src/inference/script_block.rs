//! Inline script metadata (PEP 723): the comment block with a script's dependencies.
//!
//! Format: <https://packaging.python.org/specifications/inline-script-metadata/>.

use serde::Deserialize;

use super::DependencyError;

const TYPE: &str = "script";
/// The maximum length of a block.
const MAX_BYTES: usize = 256 << 10;

/// The fields of the block that are used. `[tool]` is ignored, since a script must not choose indexes or sources.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ScriptBlock {
    #[serde(default)]
    pub(super) dependencies: Vec<String>,
    #[serde(default, rename = "requires-python")]
    pub(super) requires_python: Option<String>,
}

/// Reads the metadata block of a source. Returns `None` if it has no block.
pub(super) fn read(source: &str) -> Result<Option<ScriptBlock>, DependencyError> {
    let Some(text) = content(source)? else { return Ok(None) };
    toml::from_str(&text).map(Some).map_err(|error| DependencyError::Block { reason: error.message().to_owned() })
}

/// Returns the block's content without the comment signs.
///
/// As in the specification's reference implementation, a block is a line `# /// script` followed by lines that are `#`
/// or start with `# `. The last `# ///` among them ends the block. Text without an end is not a block.
fn content(source: &str) -> Result<Option<String>, DependencyError> {
    let mut found = None;
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        if line.strip_prefix("# /// ").is_none_or(|name| name.trim_end() != TYPE) {
            continue;
        }
        let mut block: Vec<&str> = Vec::new();
        let mut end = None;
        while let Some(line) = lines.next_if(|line| *line == "#" || line.starts_with("# ")) {
            if line.trim_end() == "# ///" {
                end = Some(block.len());
            }
            block.push(line.strip_prefix("# ").unwrap_or(""));
        }
        let Some(end) = end else { continue };
        if found.is_some() {
            return Err(DependencyError::Block { reason: "the script has two of them".to_owned() });
        }
        let text = block[..end].join("\n");
        if text.len() > MAX_BYTES {
            return Err(DependencyError::Block { reason: format!("it is longer than {} KiB", MAX_BYTES >> 10) });
        }
        found = Some(text);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn dependencies_and_python_version_are_read() {
        let source = "#!/usr/bin/env python3\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"rich<13\",\n# ]\n#\n# [tool.uv.sources]\n# rich = { path = \"/tmp\" }\n# ///\nimport rich\n";
        let block = read(source).unwrap().unwrap();
        assert_eq!(block.dependencies, ["rich<13"]);
        assert_eq!(block.requires_python.as_deref(), Some(">=3.11"));
    }

    #[test]
    fn unterminated_block_or_other_type_is_ignored() {
        for source in ["# /// script\n# dependencies = []\nimport x\n", "# /// other\n# a = 1\n# ///\n", "x = 1\n"] {
            assert_eq!(read(source).unwrap(), None, "{source}");
        }
    }

    #[test]
    fn last_end_marker_ends_the_block() {
        let block = read("# /// script\n# dependencies = [\"a\"]\n# ///\n# # more\n# ///\n").unwrap_err();
        assert!(block.to_string().contains("PEP 723"), "{block}");
    }

    #[test]
    fn two_blocks_and_bad_toml_are_errors() {
        let one = "# /// script\n# dependencies = []\n# ///\n";
        assert!(read(&format!("{one}\n{one}")).unwrap_err().to_string().contains("two"));
        assert!(read("# /// script\n# dependencies = 3\n# ///\n").is_err());
        assert!(read("# /// script\n# dependencies = [\n# ///\n").is_err());
    }
}
