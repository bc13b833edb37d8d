//! The manifest for WinGet: three files, as its repository of packages has them. The program is a portable one in a ZIP
//! archive.

use super::platform::{Platform, System};
use super::release::Release;

const IDENTIFIER: &str = "Belljar.Belljar";
/// The version of WinGet's schemas.
const SCHEMA: &str = "1.10.0";
const LOCALE: &str = "en-US";

/// Returns the names and texts of the files; or `None` if there is no program for Windows.
///
/// # Errors
///
/// Fails if a checksum is not known.
pub(super) fn manifests(
    release: &Release,
    archives: &[(&Platform, String)],
    sha256: impl Fn(&str) -> Result<String, String>,
) -> Result<Option<[(String, String); 3]>, String> {
    let Some((platform, archive)) = archives.iter().find(|(platform, _)| platform.system == System::Windows) else {
        return Ok(None);
    };
    let Release { description, repository, version, .. } = release;
    let (address, sum) = (release.address(archive), sha256(archive)?.to_uppercase());
    let folder = archive.trim_end_matches(".zip");
    let program = platform.program();
    Ok(Some([
        file("", "version", version, &format!("DefaultLocale: {LOCALE}\n")),
        file(
            ".installer",
            "installer",
            version,
            &format!(
                "\
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
- RelativeFilePath: '{folder}\\{program}'
  PortableCommandAlias: belljar
Installers:
- Architecture: x64
  InstallerUrl: {address}
  InstallerSha256: {sum}
"
            ),
        ),
        file(
            &format!(".locale.{LOCALE}"),
            "defaultLocale",
            version,
            &format!(
                "\
PackageLocale: {LOCALE}
Publisher: The Belljar developers
PublisherUrl: {repository}
PackageName: Belljar
PackageUrl: {repository}
License: MIT OR Apache-2.0
ShortDescription: '{description}'
"
            ),
        ),
    ]))
}

/// Returns the name and the text of one of the files.
fn file(suffix: &str, kind: &str, version: &str, fields: &str) -> (String, String) {
    let text = format!(
        "\
# yaml-language-server: $schema=https://aka.ms/winget-manifest.{kind}.{SCHEMA}.schema.json
PackageIdentifier: {IDENTIFIER}
PackageVersion: {version}
{fields}ManifestType: {kind}
ManifestVersion: {SCHEMA}
"
    );
    (format!("{IDENTIFIER}{suffix}.yaml"), text)
}
