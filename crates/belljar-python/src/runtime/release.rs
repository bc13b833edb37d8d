//! The supported Pyodide releases. Release numbers and hashes are listed only here.

use std::fmt;

use super::RuntimeError;

/// One of the files that an interpreter is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuntimeFile {
    /// The file `pyodide.asm.wasm`: CPython and its extension modules, as Emscripten linked them.
    Wasm,
    /// The file `python_stdlib.zip`: the standard library's `.py` files.
    Stdlib,
    /// The file `pyodide-lock.json`: the wheels that were built for this release, with their hashes.
    Lock,
}

impl RuntimeFile {
    /// All files of a release.
    pub const ALL: [RuntimeFile; 3] = [RuntimeFile::Wasm, RuntimeFile::Stdlib, RuntimeFile::Lock];

    /// Returns the file's name, which is the same in Pyodide's npm package, on its CDN and in the cache.
    pub const fn name(self) -> &'static str {
        match self {
            RuntimeFile::Wasm => "pyodide.asm.wasm",
            RuntimeFile::Stdlib => "python_stdlib.zip",
            RuntimeFile::Lock => "pyodide-lock.json",
        }
    }
}

impl fmt::Display for RuntimeFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The expected size and hash of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDigest {
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256, in lower-case hexadecimal.
    pub sha256: &'static str,
}

/// A Pyodide release.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    /// Pyodide's version: `314.0.7`.
    pub version: &'static str,
    /// CPython's major and minor version: `(3, 14)`.
    pub python: (u8, u8),
    /// CPython's micro version.
    pub micro: u8,
    /// The suffix of a pre-release: `rc1`. Empty for a final release.
    pub pre_release: &'static str,
    /// The version of the PyEmscripten platform (PEP 783), which wheels name in their tag: `abi_version` in the lock.
    pub pyemscripten: (u16, u16),
    /// The version of Emscripten.
    pub emscripten: (u16, u16, u16),
    /// The digest of `pyodide.asm.wasm`.
    pub wasm: FileDigest,
    /// The digest of `python_stdlib.zip`.
    pub stdlib: FileDigest,
    /// The digest of `pyodide-lock.json`.
    pub lock: FileDigest,
}

/// The supported releases, starting with the default. The hashes are those of the files in the npm package `pyodide`.
static RELEASES: [Release; 2] = [
    Release {
        version: "314.0.7",
        python: (3, 14),
        micro: 2,
        pre_release: "",
        pyemscripten: (2026, 0),
        emscripten: (5, 0, 3),
        wasm: FileDigest {
            size: 9_598_218,
            sha256: "cc36e3cab04fdfc9a63ff13eb52eae2b911bf46c025cc7b281f394bd3de1d5e6",
        },
        stdlib: FileDigest {
            size: 2_545_637,
            sha256: "fa1957e5777068fc4f7437f96d860ae2fbe9c19732ba06c84e004ec16dd7dd7a",
        },
        lock: FileDigest { size: 119_077, sha256: "5dc2fc119108bc148c7457dc86e7675b5c87e1cafd420b9c34c1eaef7b36c010" },
    },
    Release {
        version: "315.0.0-alpha.2",
        python: (3, 15),
        micro: 0,
        pre_release: "rc1",
        pyemscripten: (2026, 5),
        emscripten: (6, 0, 5),
        wasm: FileDigest {
            size: 9_982_568,
            sha256: "0ba52a7336d0cb4c96421c92ccb5806eafc5985105e3c0dbd3affbe51c57c0e8",
        },
        stdlib: FileDigest {
            size: 3_003_125,
            sha256: "49e7f2725e1b6e26c6820c05036920f2c177a1603a8f006543e6b62a7de56aad",
        },
        lock: FileDigest { size: 10_042, sha256: "33679429329cf9d343565b9d8ba2fe293ec3436044377eea9fe0067b55cbd361" },
    },
];

impl Release {
    /// Returns the default release.
    pub fn default_release() -> &'static Release {
        &RELEASES[0]
    }

    /// Returns all supported releases, starting with the default.
    pub fn all() -> &'static [Release] {
        &RELEASES
    }

    /// Returns the release of a version, with or without a leading `v`.
    pub fn find(version: &str) -> Result<&'static Release, RuntimeError> {
        let wanted = version.strip_prefix('v').unwrap_or(version);
        RELEASES
            .iter()
            .find(|release| release.version == wanted)
            .ok_or_else(|| RuntimeError::UnknownRelease { version: version.to_owned() })
    }

    /// Returns the digest of one of the release's files.
    pub fn digest(&self, file: RuntimeFile) -> FileDigest {
        match file {
            RuntimeFile::Wasm => self.wasm,
            RuntimeFile::Stdlib => self.stdlib,
            RuntimeFile::Lock => self.lock,
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pyodide {} (CPython {}.{})", self.version, self.python.0, self.python.1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Release, RuntimeError, RuntimeFile};

    #[test]
    fn version_is_found_with_and_without_v() {
        assert_eq!(Release::find("314.0.7").unwrap(), Release::default_release());
        assert_eq!(Release::find("v315.0.0-alpha.2").unwrap().python, (3, 15));
    }

    #[test]
    fn unknown_version_is_named_in_the_error() {
        let error = Release::find("0.27.0").unwrap_err();
        assert!(matches!(&error, RuntimeError::UnknownRelease { version } if version == "0.27.0"), "{error}");
        assert!(error.to_string().contains("0.27.0"), "{error}");
    }

    #[test]
    fn every_hash_of_the_table_is_a_sha256_and_stands_there_once() {
        let mut seen = HashSet::new();
        for release in Release::all() {
            for file in RuntimeFile::ALL {
                let sha256 = release.digest(file).sha256;
                assert_eq!(sha256.len(), 64, "{release} {file}");
                assert!(sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{release} {file}");
                assert!(seen.insert(sha256), "{release} {file} repeats a hash");
            }
        }
    }
}
