//! The tracked files that the style check reads.

use std::path::Path;
use std::process::Command;

/// A tracked file and its text.
pub(super) struct File {
    /// The path below the workspace's root.
    pub(super) path: String,
    pub(super) text: String,
}

/// Reads the tracked `.rs`, `.py` and `.md` files of the working tree that holds the current directory, or only those
/// below `paths`. Files that are new and not ignored count as tracked.
pub(super) fn read(paths: &[String]) -> Result<Vec<File>, String> {
    let top = git(&["rev-parse", "--show-toplevel"], &[])?;
    let root = Path::new(top.trim_end());
    // Without paths, the whole tree; `:/` is Git's name for its root.
    let all = [":/".to_owned()];
    let below = if paths.is_empty() { &all } else { paths };
    let names = git(&["ls-files", "-z", "--full-name", "--cached", "--others", "--exclude-standard", "--"], below)?;
    let mut names: Vec<&str> = names.split('\0').filter(|name| is_read(name)).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        return Err(format!("no .rs, .py or .md file is tracked below {}", paths.join(", ")));
    }
    let mut files = Vec::new();
    for name in names {
        let path = root.join(name);
        // A file that was deleted and not yet committed is still listed.
        if path.is_file() {
            let text = std::fs::read_to_string(&path).map_err(|error| format!("failed to read {name}: {error}"))?;
            files.push(File { path: name.to_owned(), text });
        }
    }
    Ok(files)
}

/// Returns the standard output of a Git command.
fn git(arguments: &[&str], paths: &[String]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).args(paths).output();
    let output = output.map_err(|error| format!("failed to run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git {} failed: {}", arguments[0], String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_read(name: &str) -> bool {
    [".rs", ".py", ".md"].iter().any(|ending| name.ends_with(ending))
}
