//! The keys of cached resolutions: everything that a resolution depends on, except for the content of indexes.

use super::{Installer, PackageRequest};
use crate::platform::Platform;
use crate::resolution_cache::ResolutionKey;
use crate::settings::Settings;

impl Installer {
    /// Returns the key of a request.
    pub(super) fn resolution_key(&self, request: &PackageRequest) -> ResolutionKey {
        ResolutionKey::new(self.key_parts(request).iter().map(String::as_str))
    }

    /// Returns the key of a request that is resolved without Pyodide's files.
    pub(super) fn index_key(&self, request: &PackageRequest) -> ResolutionKey {
        let parts = self.key_parts(request);
        ResolutionKey::new(std::iter::once("without pyodide").chain(parts.iter().map(String::as_str)))
    }

    /// Returns everything that the resolution of a request depends on, except for the content of indexes.
    fn key_parts(&self, request: &PackageRequest) -> Vec<String> {
        let mut parts = self.fingerprint.clone();
        parts.extend(self.settings.find_links.iter().map(|location| listing(location)));
        for (name, list) in [
            ("requirements", &request.requirements),
            ("inferred", &request.inferred),
            ("optional", &request.optional),
            ("constraints", &request.constraints),
        ] {
            parts.push(format!("{name} {}", list.len()));
            let mut texts: Vec<_> = list.iter().map(|r| format!("{r} {}", r.hashes.join(" "))).collect();
            texts.sort();
            parts.extend(texts);
        }
        parts.extend(request.installed.iter().map(|installed| format!("{}=={}", installed.name, installed.version)));
        parts
    }
}

/// Returns the parts of the platform and the settings that a resolution depends on. Being offline is not among them: it
/// changes which resolutions can be computed, but not their content.
pub(super) fn fingerprint(platform: &Platform, settings: &Settings) -> Vec<String> {
    let mut parts = vec![platform.fingerprint(), settings.policy.fingerprint()];
    parts.push(format!("index {:?} {}", settings.index_url, settings.no_index));
    parts.push(format!("extra {:?}", settings.extra_index_urls));
    parts.push(format!("links {:?}", settings.find_links));
    parts.push(format!("newer {:?}", settings.exclude_newer));
    parts.extend(settings.constraints.iter().map(|constraint| format!("constraint {constraint}")));
    if let Some(source) = &settings.pyodide {
        // Hashing the lock would cost more than the rest. A lock that is changed in place has a new modification time.
        let stamp = std::fs::metadata(&source.lock).map(|metadata| (metadata.len(), metadata.modified().ok()));
        parts.push(format!("pyodide {:?} {} {:?}", source.lock, source.base_url, stamp.ok()));
    }
    parts
}

/// Returns the names, sizes and times of the files in a directory of wheels, so that a change gives another key.
fn listing(location: &str) -> String {
    let Ok(files) = std::fs::read_dir(location) else { return String::new() };
    let mut names: Vec<String> = files
        .flatten()
        .map(|file| {
            let stamp = file.metadata().map(|metadata| (metadata.len(), metadata.modified().ok())).ok();
            format!("{:?} {stamp:?}", file.file_name())
        })
        .collect();
    names.sort();
    names.join("\n")
}
