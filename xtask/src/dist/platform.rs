//! The platforms for which programs are released.

/// An operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Linux,
    MacOs,
    Windows,
}

/// A platform, as Cargo and as package managers name it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Platform {
    /// Cargo's target triple.
    pub(super) triple: &'static str,
    pub(super) system: System,
    /// The processor, as `std::env::consts::ARCH` names it.
    pub(super) processor: &'static str,
}

pub(super) const PLATFORMS: [Platform; 5] = [
    Platform { triple: "x86_64-unknown-linux-gnu", system: System::Linux, processor: "x86_64" },
    Platform { triple: "aarch64-unknown-linux-gnu", system: System::Linux, processor: "aarch64" },
    Platform { triple: "aarch64-apple-darwin", system: System::MacOs, processor: "aarch64" },
    Platform { triple: "x86_64-apple-darwin", system: System::MacOs, processor: "x86_64" },
    Platform { triple: "x86_64-pc-windows-msvc", system: System::Windows, processor: "x86_64" },
];

impl Platform {
    /// Returns the platform with a target triple.
    pub(super) fn from_triple(triple: &str) -> Result<&'static Self, String> {
        PLATFORMS.iter().find(|platform| platform.triple == triple).ok_or_else(|| {
            let known = PLATFORMS.each_ref().map(|platform| platform.triple).join(", ");
            format!("{triple} is not a platform of releases, which are: {known}")
        })
    }

    /// Returns the platform of this process.
    pub(super) fn of_this_machine() -> Result<&'static Self, String> {
        let (system, processor) = (std::env::consts::OS, std::env::consts::ARCH);
        let here =
            PLATFORMS.iter().find(|platform| platform.system.name() == system && platform.processor == processor);
        here.ok_or_else(|| format!("programs for {system} on {processor} are not released"))
    }

    /// Returns the file name of the program.
    pub(super) fn program(&self) -> &'static str {
        if self.system == System::Windows { "belljar.exe" } else { "belljar" }
    }
}

impl System {
    /// Returns the name in `std::env::consts::OS`.
    fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::MacOs => "macos",
            Self::Windows => "windows",
        }
    }

    /// Returns the name in the manifests of MCP bundles, which is that of Node's `process.platform`.
    pub(super) fn node_name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::MacOs => "darwin",
            Self::Windows => "win32",
        }
    }
}
