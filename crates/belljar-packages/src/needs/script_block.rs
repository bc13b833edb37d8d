//! PEP 723: the comment in which a script says what it needs.
//!
//! Format: <https://packaging.python.org/specifications/inline-script-metadata/>.

use serde::Deserialize;

use super::NeedsError;

const TYPE: &str = "script";
/// Longest block that is read.
const MAX_BYTES: usize = 256 << 10;

/// The fields of the block that count here. `[tool]` is not looked at: a script chooses no index and no source.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ScriptBlock {
    #[serde(default)]
    pub(super) dependencies: Vec<String>,
    #[serde(default, rename = "requires-python")]
    pub(super) requires_python: Option<String>,
}

/// Reads the block of a source, if it has one.
pub(super) fn read(source: &str) -> Result<Option<ScriptBlock>, NeedsError> {
    let Some(text) = content(source)? else { return Ok(None) };
    toml::from_str(&text).map(Some).map_err(|error| NeedsError::Block { reason: error.message().to_owned() })
}

/// The block's content with the comment signs taken off.
///
/// As in the specification's reference: a line `# /// script`, then lines that are `#` or begin with `# `, the last
/// `# ///` among which ends the block. Without an end there is no block.
fn content(source: &str) -> Result<Option<String>, NeedsError> {
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
            return Err(NeedsError::Block { reason: "there are two of them".to_owned() });
        }
        let text = block[..end].join("\n");
        if text.len() > MAX_BYTES {
            return Err(NeedsError::Block { reason: format!("it is longer than {} KiB", MAX_BYTES >> 10) });
        }
        found = Some(text);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn dependencies_and_python_are_read_and_tools_are_not() {
        let source = "#!/usr/bin/env python3\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"rich<13\",\n# ]\n#\n# [tool.uv.sources]\n# rich = { path = \"/tmp\" }\n# ///\nimport rich\n";
        let block = read(source).unwrap().unwrap();
        assert_eq!(block.dependencies, ["rich<13"]);
        assert_eq!(block.requires_python.as_deref(), Some(">=3.11"));
    }

    #[test]
    fn without_an_end_or_of_another_type_there_is_no_block() {
        for source in ["# /// script\n# dependencies = []\nimport x\n", "# /// other\n# a = 1\n# ///\n", "x = 1\n"] {
            assert_eq!(read(source).unwrap(), None, "{source}");
        }
    }

    #[test]
    fn the_last_end_counts_as_the_specification_has_it() {
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
