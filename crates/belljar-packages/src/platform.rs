//! The guest's Python platform: the tags of its wheels and the environment for evaluating markers.

use uv_pep508::{MarkerEnvironment, MarkerEnvironmentBuilder};
use uv_platform_tags::{Arch, Os, Tags, TagsOptions};

/// The Python version and platform that wheels are chosen for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Platform {
    /// CPython's version: `(3, 14, 2)`.
    pub python: (u8, u8, u8),
    /// The suffix of a pre-release: `a2`, `rc1`. Empty for a release.
    pub pre_release: String,
    /// The version of the PyEmscripten platform (PEP 783), which is part of the wheels' tag: `(2026, 0)`.
    pub pyemscripten: (u16, u16),
    /// Emscripten's version, which is the marker `platform_release`.
    pub emscripten: (u16, u16, u16),
}

/// A platform whose markers or tags are not valid.
#[derive(Debug, thiserror::Error)]
#[error("invalid {property} of the platform: {reason}")]
pub struct PlatformError {
    property: &'static str,
    reason: String,
}

impl Platform {
    /// Returns the platform of Pyodide 314: CPython 3.14.2.
    pub fn cpython_3_14() -> Self {
        Platform { python: (3, 14, 2), pre_release: String::new(), pyemscripten: (2026, 0), emscripten: (5, 0, 3) }
    }

    /// Returns the directory into which wheels are unpacked, relative to the interpreter's prefix.
    pub fn site_packages(&self) -> String {
        format!("lib/python{}.{}/site-packages", self.python.0, self.python.1)
    }

    /// Returns the full version: `3.14.2`, `3.15.0a2`.
    pub fn python_full_version(&self) -> String {
        let (major, minor, patch) = self.python;
        format!("{major}.{minor}.{patch}{}", self.pre_release)
    }

    /// Returns the platform tag of wheels with compiled code: `pyemscripten_2026_0_wasm32`.
    pub fn tag(&self) -> String {
        format!("pyemscripten_{}_{}_wasm32", self.pyemscripten.0, self.pyemscripten.1)
    }

    /// Returns all fields in one line, which differs between platforms.
    pub(crate) fn fingerprint(&self) -> String {
        let (major, minor, patch) = self.emscripten;
        format!("cpython-{}-{}-{major}.{minor}.{patch}", self.python_full_version(), self.tag())
    }

    pub(crate) fn markers(&self) -> Result<MarkerEnvironment, PlatformError> {
        let full = self.python_full_version();
        let short = format!("{}.{}", self.python.0, self.python.1);
        let (major, minor, patch) = self.emscripten;
        let release = format!("{major}.{minor}.{patch}");
        let markers = MarkerEnvironmentBuilder {
            implementation_name: "cpython",
            implementation_version: &full,
            os_name: "posix",
            platform_machine: "wasm32",
            platform_python_implementation: "CPython",
            platform_release: &release,
            platform_system: "Emscripten",
            platform_version: "#1",
            python_full_version: &full,
            python_version: &short,
            sys_platform: "emscripten",
        };
        MarkerEnvironment::try_from(markers)
            .map_err(|error| PlatformError { property: "markers", reason: error.to_string() })
    }

    pub(crate) fn tags(&self) -> Result<Tags, PlatformError> {
        let os = Os::PyEmscripten { major: self.pyemscripten.0, minor: self.pyemscripten.1 };
        let python = (self.python.0, self.python.1);
        let options =
            TagsOptions { manylinux_compatible: false, gil_disabled: false, debug_enabled: false, is_cross: true };
        Tags::from_env(uv_platform_tags::Platform::new(os, Arch::Wasm32), python, "cpython", python, options)
            .map_err(|error| PlatformError { property: "tags", reason: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use uv_distribution_filename::WheelFilename;

    use super::Platform;

    fn accepts(platform: &Platform, file: &str) -> bool {
        WheelFilename::from_str(file).unwrap().is_compatible(&platform.tags().unwrap())
    }

    #[test]
    fn only_pure_wheels_and_wheels_for_the_platform_are_compatible() {
        let platform = Platform::cpython_3_14();
        for file in [
            "a-1-py3-none-any.whl",
            "a-1-py2.py3-none-any.whl",
            "a-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp311-abi3-pyemscripten_2026_0_wasm32.whl",
        ] {
            assert!(accepts(&platform, file), "{file}");
        }
        for file in [
            "a-1-cp313-cp313-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp314-cp314t-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp314-cp314-pyodide_2025_0_wasm32.whl",
            "a-1-cp314-cp314-manylinux_2_17_x86_64.whl",
            "a-1-py2-none-any.whl",
        ] {
            assert!(!accepts(&platform, file), "{file}");
        }
    }

    #[test]
    fn pre_release_of_python_has_its_own_markers_and_tags() {
        let platform =
            Platform { python: (3, 15, 0), pre_release: "a2".into(), pyemscripten: (2027, 0), emscripten: (5, 0, 3) };
        assert_eq!(platform.markers().unwrap().python_full_version().to_string(), "3.15.0a2");
        assert!(accepts(&platform, "a-1-cp315-cp315-pyemscripten_2027_0_wasm32.whl"));
        assert!(!accepts(&platform, "a-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl"));
    }
}
