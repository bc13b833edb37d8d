//! The identity of a wheel, given in three places that must agree: the file name, the `.dist-info` directory and
//! METADATA.

use std::collections::BTreeMap;
use std::str::FromStr;

use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName;
use uv_pep440::Version;

use super::Wheel;
use super::error::WheelError;
use crate::resolution::FileKind;

/// The directories of a wheel whose identity is consistent.
pub(super) struct DistInfo {
    /// The metadata directory: `rich-13.0.dist-info`.
    pub(super) directory: String,
    /// The data directory, if the wheel has one: `rich-13.0.data`.
    pub(super) data: Option<String>,
}

/// Reads a wheel's identity from all three places and checks that they agree with each other and with the request.
pub(super) fn read_consistent(wheel: &Wheel, files: &BTreeMap<String, Vec<u8>>) -> Result<DistInfo, WheelError> {
    let inconsistent = |reason: String| WheelError::Metadata { file: wheel.filename.clone(), reason };
    let filename = WheelFilename::from_str(&wheel.filename).map_err(|error| inconsistent(error.to_string()))?;
    let tags = wheel.platform.tags().map_err(|error| inconsistent(error.to_string()))?;
    if wheel.kind != FileKind::PythonOnly && !filename.is_compatible(&tags) {
        let platform = format!("CPython {}, {}", wheel.platform.python_full_version(), wheel.platform.tag());
        return Err(WheelError::Platform { file: wheel.filename.clone(), platform });
    }
    let directory = one_directory(files, ".dist-info", &inconsistent)?
        .ok_or_else(|| inconsistent("it has no .dist-info directory".to_owned()))?;
    let data = one_directory(files, ".data", &inconsistent)?;
    for (directory, suffix) in [(Some(&directory), ".dist-info"), (data.as_ref(), ".data")] {
        let Some(directory) = directory else { continue };
        let stem = directory.strip_suffix(suffix).unwrap_or(directory);
        let same = stem.split_once('-').is_some_and(|(name, version)| {
            PackageName::from_str(name).is_ok_and(|name| name == filename.name)
                && Version::from_str(version).is_ok_and(|version| version == filename.version)
        });
        if !same {
            return Err(inconsistent(format!(
                "the file name is of {} {}, the directory is `{directory}`",
                filename.name, filename.version
            )));
        }
    }

    let read = |name: &str| {
        let path = format!("{directory}/{name}");
        let bytes = files.get(&path).ok_or_else(|| inconsistent(format!("it has no {name}")))?;
        // Old metadata may have any encoding. The fields that are read are ASCII.
        Ok::<_, WheelError>(String::from_utf8_lossy(bytes).into_owned())
    };
    let metadata = read("METADATA")?;
    let name = field(&metadata, "Name").and_then(|name| PackageName::from_str(name).ok());
    let version = field(&metadata, "Version").and_then(|version| Version::from_str(version).ok());
    match (name, version) {
        (Some(name), Some(version)) if name == filename.name && version == filename.version => {}
        (Some(name), Some(version)) => {
            return Err(inconsistent(format!(
                "the file name is of {} {}, METADATA is of {name} {version}",
                filename.name, filename.version
            )));
        }
        _ => return Err(inconsistent("METADATA lacks a valid name or version".to_owned())),
    }
    if filename.name.as_ref() != wheel.name {
        return Err(inconsistent(format!("the file name is of {}, but {} was requested", filename.name, wheel.name)));
    }
    match field(&read("WHEEL")?, "Wheel-Version").and_then(|version| version.split('.').next()) {
        Some("1") => Ok(DistInfo { directory, data }),
        Some(other) => {
            Err(inconsistent(format!("its wheel format is version {other}, and only version 1 is supported")))
        }
        None => Err(inconsistent("WHEEL lacks the version of the wheel format".to_owned())),
    }
}

/// Returns the top-level directory whose name ends with `suffix`, if the wheel has one. More than one is an error.
fn one_directory(
    files: &BTreeMap<String, Vec<u8>>,
    suffix: &str,
    inconsistent: &impl Fn(String) -> WheelError,
) -> Result<Option<String>, WheelError> {
    let mut found: Option<&str> = None;
    for path in files.keys() {
        let Some((top, _)) = path.split_once('/') else { continue };
        if !top.ends_with(suffix) || found == Some(top) {
            continue;
        }
        if let Some(first) = found {
            return Err(inconsistent(format!("it has two {suffix} directories, `{first}` and `{top}`")));
        }
        found = Some(top);
    }
    Ok(found.map(str::to_owned))
}

/// Returns a header of a file in e-mail format (METADATA, WHEEL). The first occurrence counts; a blank line ends the
/// headers.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().take_while(|line| !line.trim().is_empty()).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
