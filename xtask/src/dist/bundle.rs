//! The bundle for clients of MCP (`.mcpb`): a ZIP archive with a manifest and the program, which clients install with
//! one click. `packaging/manifest.json` is the manifest for Linux; a bundle has that of its platform, since a manifest
//! has one program for each system and does not name processors.

use serde_json::{Value, json};

use super::archive::Entry;
use super::platform::Platform;
use super::release::Release;
use super::{LICENSES, read};

const MANIFEST: &str = "manifest.json";

/// Returns the files of a bundle.
///
/// # Errors
///
/// Fails if a file cannot be read, or the manifest has another version than the release.
pub(super) fn entries(release: &Release, platform: &Platform, program: &[u8]) -> Result<Vec<Entry>, String> {
    let path = release.root.join("packaging").join(MANIFEST);
    let manifest = serde_json::from_slice(&read(&path)?);
    let manifest = manifest.map_err(|error| format!("failed to read {}: {error}", path.display()))?;
    let manifest = for_platform(manifest, release, platform)?;
    let mut text = format!("{manifest:#}");
    text.push('\n');
    let mut entries =
        vec![Entry::file(MANIFEST, text), Entry::program(format!("server/{}", platform.program()), program)];
    for name in LICENSES {
        entries.push(Entry::file(name, read(&release.root.join(name))?));
    }
    Ok(entries)
}

/// Returns the manifest with the program and the system of a platform.
fn for_platform(mut manifest: Value, release: &Release, platform: &Platform) -> Result<Value, String> {
    if manifest["version"] != release.version.as_str() {
        return Err(format!("packaging/{MANIFEST} has version {}, not {}", manifest["version"], release.version));
    }
    let program = format!("server/{}", platform.program());
    manifest["server"]["mcp_config"]["command"] = json!(format!("${{__dirname}}/{program}"));
    manifest["server"]["entry_point"] = json!(program);
    manifest["compatibility"]["platforms"] = json!([platform.system.node_name()]);
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_of_another_version_is_an_error() {
        let root = crate::workspace::workspace().unwrap();
        let mut release = Release::of_workspace(&root).unwrap();
        release.version = "99.0.0".into();
        let platform = Platform::from_triple("x86_64-unknown-linux-gnu").unwrap();
        assert!(entries(&release, platform, b"program").unwrap_err().contains("99.0.0"));
    }
}
