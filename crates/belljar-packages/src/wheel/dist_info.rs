//! Who a wheel says it is, in three places that must agree: its file name, its `.dist-info` directory, its METADATA.

use std::collections::BTreeMap;
use std::str::FromStr;

use uv_distribution_filename::WheelFilename;
use uv_normalize::PackageName;
use uv_pep440::Version;

use super::Wheel;
use super::error::WheelError;
use crate::resolution::Kind;

/// The identity of a wheel, agreed on.
pub(super) struct DistInfo {
    /// `rich-13.0.dist-info`.
    pub(super) directory: String,
    /// `rich-13.0.data`, which need not exist.
    pub(super) data: Option<String>,
}

/// Reads and compares the three.
pub(super) fn agree(wheel: &Wheel, files: &BTreeMap<String, Vec<u8>>) -> Result<DistInfo, WheelError> {
    let disagree = |reason: String| WheelError::Metadata { file: wheel.filename.clone(), reason };
    let filename = WheelFilename::from_str(&wheel.filename).map_err(|error| disagree(error.to_string()))?;
    let tags = wheel.platform.tags().map_err(|error| disagree(error.to_string()))?;
    if wheel.kind != Kind::PythonOnly && !filename.is_compatible(&tags) {
        let platform = format!("CPython {}, {}", wheel.platform.python_full_version(), wheel.platform.tag());
        return Err(WheelError::Platform { file: wheel.filename.clone(), platform });
    }
    let directory = one_directory(files, ".dist-info", &disagree)?
        .ok_or_else(|| disagree("it has no .dist-info directory".to_owned()))?;
    let data = one_directory(files, ".data", &disagree)?;
    for (directory, suffix) in [(Some(&directory), ".dist-info"), (data.as_ref(), ".data")] {
        let Some(directory) = directory else { continue };
        let stem = directory.strip_suffix(suffix).unwrap_or(directory);
        let same = stem.split_once('-').is_some_and(|(name, version)| {
            PackageName::from_str(name).is_ok_and(|name| name == filename.name)
                && Version::from_str(version).is_ok_and(|version| version == filename.version)
        });
        if !same {
            return Err(disagree(format!(
                "the file is of {} {}, its directory is `{directory}`",
                filename.name, filename.version
            )));
        }
    }

    let read = |name: &str| {
        let path = format!("{directory}/{name}");
        let bytes = files.get(&path).ok_or_else(|| disagree(format!("it has no {name}")))?;
        // Old metadata come in any encoding; the fields that are read are ASCII.
        Ok::<_, WheelError>(String::from_utf8_lossy(bytes).into_owned())
    };
    let metadata = read("METADATA")?;
    let name = field(&metadata, "Name").and_then(|name| PackageName::from_str(name).ok());
    let version = field(&metadata, "Version").and_then(|version| Version::from_str(version).ok());
    match (name, version) {
        (Some(name), Some(version)) if name == filename.name && version == filename.version => {}
        (Some(name), Some(version)) => {
            return Err(disagree(format!(
                "the file is of {} {}, its METADATA are of {name} {version}",
                filename.name, filename.version
            )));
        }
        _ => return Err(disagree("its METADATA name no package and version".to_owned())),
    }
    if filename.name.as_ref() != wheel.name {
        return Err(disagree(format!("the file is of {}, and {} was asked for", filename.name, wheel.name)));
    }
    match field(&read("WHEEL")?, "Wheel-Version").and_then(|version| version.split('.').next()) {
        Some("1") => Ok(DistInfo { directory, data }),
        Some(other) => Err(disagree(format!("its wheel format is version {other}, and 1 is understood"))),
        None => Err(disagree("its WHEEL names no version of the wheel format".to_owned())),
    }
}

/// The one directory at the top whose name ends so, if there is one.
fn one_directory(
    files: &BTreeMap<String, Vec<u8>>,
    suffix: &str,
    disagree: &impl Fn(String) -> WheelError,
) -> Result<Option<String>, WheelError> {
    let mut found: Option<&str> = None;
    for path in files.keys() {
        let Some((top, _)) = path.split_once('/') else { continue };
        if !top.ends_with(suffix) || found == Some(top) {
            continue;
        }
        if let Some(first) = found {
            return Err(disagree(format!("it has two {suffix} directories, `{first}` and `{top}`")));
        }
        found = Some(top);
    }
    Ok(found.map(str::to_owned))
}

/// A header of an e-mail-like file (METADATA, WHEEL). Only the first counts; a blank line ends the headers.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().take_while(|line| !line.trim().is_empty()).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
