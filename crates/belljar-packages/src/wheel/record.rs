//! RECORD: a wheel's list of its files with their hashes. Unlike uv and pip, Belljar requires that every file is listed
//! and matches its hash.
//!
//! Format: <https://packaging.python.org/specifications/recording-installed-packages/#the-record-file>.

use std::collections::{BTreeMap, HashMap};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::UnpackedFile;
use super::error::WheelError;

/// The files that RECORD does not list: RECORD itself and its signatures.
const UNLISTED: [&str; 3] = ["RECORD", "RECORD.jws", "RECORD.p7s"];

/// Checks every file against RECORD.
pub(super) fn check(file: &str, dist_info: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<(), WheelError> {
    let mismatch = |path: &str, reason: &str| WheelError::Record {
        file: file.to_owned(),
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    let record_path = format!("{dist_info}/RECORD");
    let record = files.get(&record_path).ok_or_else(|| mismatch(&record_path, "the wheel has no RECORD"))?;
    let mut listed: HashMap<String, (String, String)> = HashMap::new();
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(record.as_slice());
    for row in reader.records() {
        let row = row.map_err(|error| mismatch(&record_path, &format!("failed to parse it: {error}")))?;
        let field = |index: usize| row.get(index).unwrap_or_default().to_owned();
        let hash_and_size = (field(1), field(2));
        if listed.insert(field(0), hash_and_size.clone()).is_some_and(|first| first != hash_and_size) {
            return Err(mismatch(&field(0), "it is listed twice with different values"));
        }
    }
    for (path, content) in files {
        let name = path.strip_prefix(dist_info).and_then(|rest| rest.strip_prefix('/'));
        if name.is_some_and(|name| UNLISTED.contains(&name)) {
            continue;
        }
        let Some((hash, size)) = listed.get(path) else { return Err(mismatch(path, "it is not listed")) };
        if !size.is_empty() && size.parse() != Ok(content.len()) {
            return Err(mismatch(path, &format!("its size is {} bytes, listed as {size}", content.len())));
        }
        match hash_matches(hash, content) {
            Some(true) => {}
            Some(false) => return Err(mismatch(path, "its hash differs")),
            None if hash.is_empty() => return Err(mismatch(path, "no hash is listed")),
            None => {
                return Err(mismatch(
                    path,
                    &format!("the hash `{hash}` is not supported (sha256 or stronger is required)"),
                ));
            }
        }
    }
    Ok(())
}

/// Returns whether content matches a hash `ALGORITHM=BASE64`, or `None` if the hash is malformed or not supported.
fn hash_matches(hash: &str, content: &[u8]) -> Option<bool> {
    let (algorithm, expected) = hash.split_once('=')?;
    // Some tools add padding, although the format does not allow it.
    let expected = URL_SAFE_NO_PAD.decode(expected.trim_end_matches('=')).ok()?;
    Some(match algorithm {
        "sha256" => Sha256::digest(content).as_slice() == expected,
        "sha384" => Sha384::digest(content).as_slice() == expected,
        "sha512" => Sha512::digest(content).as_slice() == expected,
        _ => return None,
    })
}

/// Returns the RECORD of the installed files for `importlib.metadata`, with paths relative to site-packages.
pub(super) fn for_layout(site_packages: &str, record_path: &str, files: &[UnpackedFile]) -> String {
    let up = "../".repeat(site_packages.split('/').count());
    let relative = |path: &str| match path.strip_prefix(site_packages).and_then(|rest| rest.strip_prefix('/')) {
        Some(inside) => inside.to_owned(),
        None => format!("{up}{path}"),
    };
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::Any(b'\n')).from_writer(Vec::new());
    for file in files {
        let hash = format!("sha256={}", URL_SAFE_NO_PAD.encode(Sha256::digest(&file.bytes)));
        // Writing to a vector cannot fail.
        let _ = writer.write_record([relative(&file.path), hash, file.bytes.len().to_string()]);
    }
    let _ = writer.write_record([relative(record_path), String::new(), String::new()]);
    writer.into_inner().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{for_layout, hash_matches};
    use crate::wheel::UnpackedFile;

    #[test]
    fn only_supported_hashes_are_compared() {
        let empty = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU";
        assert_eq!(hash_matches(empty, b""), Some(true));
        assert_eq!(hash_matches(&format!("{empty}="), b""), Some(true));
        assert_eq!(hash_matches(empty, b"x"), Some(false));
        assert_eq!(hash_matches("md5=1B2M2Y8AsgTpgAmY7PhCfg", b""), None);
        assert_eq!(hash_matches("", b""), None);
        assert_eq!(hash_matches("sha256=!", b""), None);
    }

    #[test]
    fn record_paths_are_relative_to_site_packages() {
        let files = [
            UnpackedFile::new("bin/tool".into(), b"x".to_vec()),
            UnpackedFile::new("lib/python3.14/site-packages/a,b.py".into(), Vec::new()),
        ];
        let site = "lib/python3.14/site-packages";
        let record = for_layout(site, &format!("{site}/a-1.dist-info/RECORD"), &files);
        let lines: Vec<_> = record.lines().collect();
        assert_eq!(lines[0], "../../../bin/tool,sha256=LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE,1");
        assert_eq!(lines[1], "\"a,b.py\",sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0");
        assert_eq!(lines[2], "a-1.dist-info/RECORD,,");
    }
}
