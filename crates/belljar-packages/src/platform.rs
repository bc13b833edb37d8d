//! What the guest's Python is: the tags its wheels carry, the environment that markers are evaluated in.

use uv_pep508::{MarkerEnvironment, MarkerEnvironmentBuilder};
use uv_platform_tags::{Arch, Os, Tags, TagsOptions};

use crate::error::InstallError;

/// The Python that wheels are chosen for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Platform {
    /// CPython's version: `(3, 14, 2)`.
    pub python: (u8, u8, u8),
    /// What follows the version in a pre-release: `a2`, `rc1`. Empty for a release.
    pub pre_release: String,
    /// The version of the PyEmscripten platform (PEP 783), which wheels name in their tag: `(2026, 0)`.
    pub pyemscripten: (u16, u16),
    /// Emscripten's version, which markers see as `platform_release`.
    pub emscripten: (u16, u16, u16),
}

impl Platform {
    /// CPython 3.14.2 of Pyodide 314.
    pub fn cpython_3_14() -> Self {
        Platform { python: (3, 14, 2), pre_release: String::new(), pyemscripten: (2026, 0), emscripten: (5, 0, 3) }
    }

    /// The directory, relative to the interpreter's prefix, into which wheels are unpacked.
    pub fn site_packages(&self) -> String {
        format!("lib/python{}.{}/site-packages", self.python.0, self.python.1)
    }

    /// `3.14.2`, `3.15.0a2`.
    pub fn python_full_version(&self) -> String {
        let (major, minor, patch) = self.python;
        format!("{major}.{minor}.{patch}{}", self.pre_release)
    }

    /// The platform tag of wheels with compiled code: `pyemscripten_2026_0_wasm32`.
    pub fn tag(&self) -> String {
        format!("pyemscripten_{}_{}_wasm32", self.pyemscripten.0, self.pyemscripten.1)
    }

    /// Everything that tells this platform from another, in one line.
    pub(crate) fn fingerprint(&self) -> String {
        let (major, minor, patch) = self.emscripten;
        format!("cpython-{}-{}-{major}.{minor}.{patch}", self.python_full_version(), self.tag())
    }

    pub(crate) fn markers(&self) -> Result<MarkerEnvironment, InstallError> {
        let full = self.python_full_version();
        let short = format!("{}.{}", self.python.0, self.python.1);
        let (major, minor, patch) = self.emscripten;
        let release = format!("{major}.{minor}.{patch}");
        MarkerEnvironmentBuilder {
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
        }
        .try_into()
        .map_err(|error| InstallError::Internal { what: format!("the platform's markers: {error}") })
    }

    pub(crate) fn tags(&self) -> Result<Tags, InstallError> {
        let os = Os::PyEmscripten { major: self.pyemscripten.0, minor: self.pyemscripten.1 };
        let python = (self.python.0, self.python.1);
        let options =
            TagsOptions { manylinux_compatible: false, gil_disabled: false, debug_enabled: false, is_cross: true };
        Tags::from_env(uv_platform_tags::Platform::new(os, Arch::Wasm32), python, "cpython", python, options)
            .map_err(|error| InstallError::Internal { what: format!("the platform's tags: {error}") })
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use uv_distribution_filename::WheelFilename;

    use super::Platform;

    fn takes(platform: &Platform, file: &str) -> bool {
        WheelFilename::from_str(file).unwrap().is_compatible(&platform.tags().unwrap())
    }

    #[test]
    fn pure_wheels_and_those_for_the_platform_fit_and_others_do_not() {
        let platform = Platform::cpython_3_14();
        for file in [
            "a-1-py3-none-any.whl",
            "a-1-py2.py3-none-any.whl",
            "a-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp311-abi3-pyemscripten_2026_0_wasm32.whl",
        ] {
            assert!(takes(&platform, file), "{file}");
        }
        for file in [
            "a-1-cp313-cp313-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp314-cp314t-pyemscripten_2026_0_wasm32.whl",
            "a-1-cp314-cp314-pyodide_2025_0_wasm32.whl",
            "a-1-cp314-cp314-manylinux_2_17_x86_64.whl",
            "a-1-py2-none-any.whl",
        ] {
            assert!(!takes(&platform, file), "{file}");
        }
    }

    #[test]
    fn a_pre_release_of_python_has_markers_and_tags_of_its_own() {
        let platform =
            Platform { python: (3, 15, 0), pre_release: "a2".into(), pyemscripten: (2027, 0), emscripten: (5, 0, 3) };
        assert_eq!(platform.markers().unwrap().python_full_version().to_string(), "3.15.0a2");
        assert!(takes(&platform, "a-1-cp315-cp315-pyemscripten_2027_0_wasm32.whl"));
        assert!(!takes(&platform, "a-1-cp314-cp314-pyemscripten_2026_0_wasm32.whl"));
    }
}
