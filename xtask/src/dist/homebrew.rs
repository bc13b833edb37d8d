//! The Homebrew formula, which installs the program of an archive. A tap has it as `Formula/belljar.rb`.

use super::platform::{Platform, System};
use super::release::Release;

/// Returns the formula, with the archives that exist; or `None` without one for Linux or macOS.
///
/// # Errors
///
/// Fails if a checksum is not known.
pub(super) fn formula(
    release: &Release,
    archives: &[(&Platform, String)],
    sha256: impl Fn(&str) -> Result<String, String>,
) -> Result<Option<String>, String> {
    let (mut systems, mut only) = (String::new(), None);
    for (system, block) in [(System::Linux, "linux"), (System::MacOs, "macos")] {
        let here: Vec<_> = archives.iter().filter(|(platform, _)| platform.system == system).collect();
        match here.as_slice() {
            // Without this, Homebrew would report a formula without an address on the other system.
            [] => only = Some(if system == System::Linux { "macos" } else { "linux" }),
            [one] => {
                let processor = if one.0.processor == "aarch64" { "arm64" } else { "x86_64" };
                let [url, sum] = lines(release, &one.1, &sha256)?;
                systems +=
                    &format!("\n  on_{block} do\n    depends_on arch: :{processor}\n    {url}\n    {sum}\n  end\n");
            }
            several => {
                systems += &format!("\n  on_{block} do\n");
                for (platform, archive) in several {
                    let processor = if platform.processor == "aarch64" { "arm" } else { "intel" };
                    let [url, sum] = lines(release, archive, &sha256)?;
                    systems += &format!("    on_{processor} do\n      {url}\n      {sum}\n    end\n");
                }
                systems += "  end\n";
            }
        }
    }
    if systems.is_empty() {
        return Ok(None);
    }
    let only = only.map(|system| format!("\n  depends_on :{system}\n")).unwrap_or_default();
    let Release { description, repository, version, .. } = release;
    Ok(Some(format!(
        "\
class Belljar < Formula
  desc \"{description}\"
  homepage \"{repository}\"
  version \"{version}\"
  license any_of: [\"MIT\", \"Apache-2.0\"]
{only}{systems}
  def install
    bin.install \"belljar\"
    generate_completions_from_executable(bin/\"belljar\", \"completions\")
    system bin/\"belljar\", \"man\", \"--out\", buildpath/\"man\"
    man1.install Dir[\"man/*.1\"]
  end

  test do
    assert_match version.to_s, shell_output(\"#{{bin}}/belljar --version\")
  end
end
"
    )))
}

/// Returns the lines with the address and the checksum of an archive.
fn lines(
    release: &Release,
    archive: &str,
    sha256: impl Fn(&str) -> Result<String, String>,
) -> Result<[String; 2], String> {
    Ok([format!("url \"{}\"", release.address(archive)), format!("sha256 \"{}\"", sha256(archive)?)])
}
