//! `cargo xtask dist`: makes the files of a release from programs and Python packages that are built.
//!
//! The same input gives the same bytes: entries of archives are sorted, their times are that of the last commit, and
//! they have no owner.

mod archive;
mod bundle;
mod container;
mod homebrew;
mod output;
mod platform;
mod release;
mod sbom;
#[cfg(test)]
mod tests;
mod winget;

use std::path::{Path, PathBuf};

use crate::workspace::{Profile, build_belljar, target_directory, workspace};
use archive::Entry;
use output::Output;
use platform::{Platform, System};
use release::Release;

const USAGE: &str = "\
Usage: cargo xtask dist [--program TRIPLE=FILE]… [--package FILE]… [--out DIR]

Makes the files of a release: for each platform an archive, a bundle for MCP clients (.mcpb), an SBOM (CycloneDX) and,
for Linux, the build context of a container image; a Homebrew formula; a WinGet manifest if there is a program for
Windows; and SHA256SUMS of all of them.

  --program TRIPLE=FILE  a program and its platform [default: build the release profile for this machine]
  --package FILE         a wheel or sdist, made by `cargo xtask wheel --release`, to copy to the release
  --out DIR              an empty or new directory [default: dist in the build folder, which is emptied]

Two calls with the same programs write the same bytes. Their times are SOURCE_DATE_EPOCH, by default that of the last
commit.";

/// The files of the workspace that an archive and a bundle contain.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
const DOCUMENTS: [&str; 2] = ["README.md", "CHANGELOG.md"];
const SUMS: &str = "SHA256SUMS";

/// A program that is built.
#[derive(Debug)]
struct Program {
    platform: &'static Platform,
    path: PathBuf,
}

/// The options of the chore.
#[derive(Debug, Default)]
struct Options {
    programs: Vec<Program>,
    packages: Vec<PathBuf>,
    out: Option<PathBuf>,
    help: bool,
}

/// Runs the chore.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let mut options = parse(arguments)?;
    if options.help {
        println!("{USAGE}");
        return Ok(true);
    }
    let root = workspace()?;
    let release = Release::of_workspace(&root)?;
    let out = if let Some(out) = options.out {
        out
    } else {
        let out = target_directory()?.join("dist");
        match std::fs::remove_dir_all(&out) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("failed to empty {}: {error}", out.display()));
            }
            _ => out,
        }
    };
    let mut output = Output::create(&out)?;
    if options.programs.is_empty() {
        let platform = Platform::of_this_machine()?;
        println!("building belljar for {}", platform.triple);
        options.programs.push(Program { platform, path: build_belljar(Profile::Release)? });
    }
    make(&release, &options.programs, &options.packages, &mut output, |platform| sbom::metadata(&root, platform))?;
    Ok(true)
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value\n\n{USAGE}"));
        match argument.as_str() {
            "--program" => {
                let value = value()?;
                let (triple, path) = value.split_once('=').ok_or_else(|| format!("{value} is not TRIPLE=FILE"))?;
                let platform = Platform::from_triple(triple)?;
                if options.programs.iter().any(|program| program.platform == platform) {
                    return Err(format!("there are two programs for {triple}"));
                }
                options.programs.push(Program { platform, path: path.into() });
            }
            "--package" => options.packages.push(value()?.into()),
            "--out" => options.out = Some(value()?.into()),
            "--help" | "-h" => options.help = true,
            other => return Err(format!("unknown option {other}\n\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Makes all files. `metadata` returns what `cargo metadata` prints for a platform.
fn make(
    release: &Release,
    programs: &[Program],
    packages: &[PathBuf],
    output: &mut Output,
    metadata: impl Fn(&Platform) -> Result<serde_json::Value, String>,
) -> Result<(), String> {
    let mut archives: Vec<(&Platform, String)> = Vec::new();
    let mut programs: Vec<&Program> = programs.iter().collect();
    programs.sort_by_key(|program| program.platform.triple);
    for Program { platform, path } in programs.iter().copied() {
        let (platform, program) = (*platform, read(path)?);
        let stem = format!("belljar-{}-{}", release.version, platform.triple);
        let sbom = sbom::cyclonedx(&metadata(platform)?, release, platform)?;
        let archive = archive_name(release, platform);
        let entries = archive_entries(release, platform, &stem, &program, &sbom)?;
        let bytes = if platform.system == System::Windows {
            archive::zip(entries, release.epoch)?
        } else {
            archive::tar_gz(entries, release.epoch)?
        };
        output.add(&archive, &bytes)?;
        archives.push((platform, archive));
        output.add(&format!("{stem}.cdx.json"), &sbom)?;
        let bundle = archive::zip(bundle::entries(release, platform, &program)?, release.epoch)?;
        output.add(&format!("{stem}.mcpb"), &bundle)?;
        if platform.system == System::Linux {
            let context = archive::tar_gz(container::entries(release, &program)?, release.epoch)?;
            output.add(&format!("{stem}-container.tar.gz"), &context)?;
        }
    }
    for package in packages {
        output.add(&package_name(release, package)?, &read(package)?)?;
    }
    match homebrew::formula(release, &archives, |name| output.sha256(name))? {
        Some(formula) => output.add("belljar.rb", formula.as_bytes())?,
        None => println!("no Homebrew formula: there is no program for Linux or macOS"),
    }
    match winget::manifests(release, &archives, |name| output.sha256(name))? {
        Some(manifests) => {
            for (name, text) in manifests {
                output.add(&name, text.as_bytes())?;
            }
        }
        None => println!("no WinGet manifest: there is no program for Windows"),
    }
    let sums = output.sums();
    output.add(SUMS, sums.as_bytes())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("failed to read {}: {error}", path.display()))
}

/// Returns the name of the archive for a platform.
fn archive_name(release: &Release, platform: &Platform) -> String {
    let extension = if platform.system == System::Windows { "zip" } else { "tar.gz" };
    format!("belljar-{}-{}.{extension}", release.version, platform.triple)
}

/// Returns the files of an archive, in a folder named like the archive.
fn archive_entries(
    release: &Release,
    platform: &Platform,
    folder: &str,
    program: &[u8],
    sbom: &[u8],
) -> Result<Vec<Entry>, String> {
    let mut entries = vec![
        Entry::program(format!("{folder}/{}", platform.program()), program),
        Entry::file(format!("{folder}/belljar.cdx.json"), sbom),
    ];
    for name in LICENSES.iter().chain(&DOCUMENTS) {
        entries.push(Entry::file(format!("{folder}/{name}"), read(&release.root.join(name))?));
    }
    Ok(entries)
}

/// Returns the file name of a wheel or sdist, which must be of this version.
fn package_name(release: &Release, package: &Path) -> Result<String, String> {
    let name = package.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let wheel = name.starts_with(&format!("belljar-{}-", release.version)) && name.ends_with(".whl");
    if wheel || name == format!("belljar-{}.tar.gz", release.version) {
        return Ok(name.to_owned());
    }
    Err(format!("{} is not a wheel or sdist of belljar {}", package.display(), release.version))
}
