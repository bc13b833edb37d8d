//! The paths of a session as its kernel sees them, and what follows from them: the configuration of the kernel and the
//! specification of its sandbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belljar_core::Limits;
use belljar_sandbox::{self as sandbox, FolderSource, Policy, Spec};

use crate::linux::function_calls;
use crate::linux::native_config::NativeConfig;
use crate::linux::network::SessionNetwork;
use crate::linux::zygote::KernelLaunchConfig;

/// The directory of a session's files inside its sandbox.
pub(crate) const SESSION: &str = "/session";
/// A directory in which models expect the session's files, since ChatGPT's code interpreter has them there. It is a
/// link to [`SESSION`].
const DATA_LINK: &str = "/mnt/data";
/// The directory of the kernel's sockets inside its sandbox.
pub(crate) const SOCKETS: &str = "/kernel";
/// The size of the directory of sockets at most, in bytes.
pub(crate) const SOCKETS_BYTES: u64 = 1 << 20;
/// The number of files in the directory of sockets at most.
const SOCKETS_FILES: u64 = 64;

/// The paths of a session as its kernel sees them. Paths of the host are the same inside the sandbox.
pub(crate) struct SandboxPaths {
    pub(crate) session: String,
    /// The path of the session's folder on the host, if its files are in one.
    pub(crate) session_source: Option<PathBuf>,
    pub(crate) sockets: String,
    pub(crate) temporary: String,
    pub(crate) site: PathBuf,
    pub(crate) broker_socket: PathBuf,
}

impl SandboxPaths {
    /// Returns the configuration of a kernel with these paths, without the connection.
    pub(crate) fn launch_config(&self, config: &NativeConfig, network: Option<&SessionNetwork>) -> KernelLaunchConfig {
        let text = |path: &Path| path.display().to_string();
        let python = config.guest_python();
        let bin = python.parent().map(text).unwrap_or_default();
        let environment = python.parent().and_then(Path::parent).map(text).unwrap_or_default();
        let code = text(&config.code);
        let mut variables = vec![
            ("PATH", format!("{code}/bin:{bin}:/usr/local/bin:/usr/bin:/bin")),
            ("LANG", "C.UTF-8".into()),
            ("HOME", self.session.clone()),
            ("TMPDIR", self.temporary.clone()),
            ("VIRTUAL_ENV", environment),
            ("PYTHONPATH", format!("{code}/pip_stub:{}", text(&self.site))),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("IPYTHONDIR", format!("{}/ipython", self.temporary)),
            ("MPLCONFIGDIR", format!("{}/matplotlib", self.temporary)),
            // matplotlib's figures become images of the cell by this backend, which `kernel.py` attaches to the shell
            // (`_configure_shell`). Plotly's figures have a formatter in `plotly_display.py`.
            ("MPLBACKEND", "module://matplotlib_inline.backend_inline".into()),
            ("BELLJAR_CODE", code.clone()),
            ("BELLJAR_SITE", text(&self.site)),
            ("BELLJAR_BROKER", text(&self.broker_socket)),
        ];
        if config.policy != Policy::Unsandboxed {
            // There is no sound card. SDL (pygame) would look for one, and ALSA would write a page of errors.
            variables.push(("SDL_AUDIODRIVER", "dummy".into()));
        }
        // A secret does not replace a variable of the sandbox.
        let mut environment: BTreeMap<String, String> =
            network.map(SessionNetwork::variables).unwrap_or_default().into_iter().collect();
        environment.extend(variables.into_iter().map(|(name, value)| (name.to_owned(), value)));
        KernelLaunchConfig {
            environment,
            directory: self.session.clone(),
            code,
            site: text(&self.site),
            sockets: self.sockets.clone(),
            functions: config.tools.then(|| format!("{}/{}", self.sockets, function_calls::SOCKET)),
            fonts: text(&config.fonts),
            color: config.color,
            network: config.policy != Policy::Weak,
            host_network: config.policy == Policy::Unsandboxed,
            proxy: network.is_some(),
            connection: serde_json::Value::Null,
        }
    }

    /// Returns the specification of a sandbox with these paths.
    pub(crate) fn spec(
        &self,
        config: &NativeConfig,
        user: Option<u32>,
        mut readable: Vec<PathBuf>,
        launch_config: &KernelLaunchConfig,
        network: Option<&SessionNetwork>,
    ) -> Spec {
        let Limits { memory, disk, files, .. } = config.limits;
        let broker_dir = self.broker_socket.parent().map(Path::to_path_buf);
        readable.extend([config.code.clone(), config.fonts.clone(), self.site.clone()].into_iter().chain(broker_dir));
        readable.extend(network.map(SessionNetwork::readable));
        // Every sandbox shows `/usr`.
        readable.retain(|path| !path.starts_with("/usr"));
        let folder = |inside: &str, bytes: u64, files: u64| {
            if let Some(source) = self.session_source.as_ref().filter(|_| inside == self.session) {
                return sandbox::Folder { inside: inside.into(), source: FolderSource::Host(source.clone()) };
            }
            let is_on_host = Path::new(inside).starts_with(config.root.path());
            let source =
                if is_on_host { FolderSource::Host(inside.into()) } else { FolderSource::Memory { bytes, files } };
            sandbox::Folder { inside: inside.into(), source }
        };
        let mut folders =
            vec![folder(&self.session, disk, u64::from(files)), folder(&self.sockets, SOCKETS_BYTES, SOCKETS_FILES)];
        if self.temporary != "/tmp" {
            folders.push(folder(&self.temporary, disk, u64::from(files)));
        }
        for mount in &config.mounts {
            if config.policy == Policy::Full || mount.writable {
                folders.push(mount.folder());
            } else {
                readable.push(mount.source.clone());
            }
        }
        let mut others = readable.iter().chain(folders.iter().map(|folder| &folder.inside));
        let is_free = self.session == SESSION && others.all(|path| !path.starts_with(DATA_LINK));
        let links = if is_free { BTreeMap::from([(DATA_LINK.into(), SESSION.into())]) } else { BTreeMap::new() };
        Spec {
            links,
            environment: launch_config.environment.clone(),
            directory: self.session.clone().into(),
            user,
            readable,
            folders,
            devices: config.devices.clone(),
            listener: network.map(SessionNetwork::port),
            control_groups: config.control_groups.clone(),
            limits: sandbox::ResourceLimits {
                memory_bytes: Some(memory),
                file_bytes: disk,
                ..sandbox::ResourceLimits::default()
            },
            ..Spec::idle()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::host_folder::NativeMount;

    #[test]
    fn control_groups_devices_and_host_folders_are_passed_on() {
        let config = |control_groups: Option<&str>, devices: &[&str]| NativeConfig {
            root: tempfile::tempdir().unwrap(),
            code: "/code".into(),
            fonts: "/fonts".into(),
            python: "/environment/bin/python".into(),
            view: None,
            python_version: None,
            policy: Policy::Full,
            limits: Limits::default(),
            color: false,
            control_groups: control_groups.map(PathBuf::from),
            devices: devices.iter().map(PathBuf::from).collect(),
            mounts: vec![NativeMount { source: "/srv/data".into(), inside: "/data".into(), writable: false }],
            tools: false,
            network: None,
            installer: None,
            install_hint: None,
        };
        let paths = SandboxPaths {
            session: SESSION.into(),
            session_source: Some("/srv/files/one".into()),
            sockets: SOCKETS.into(),
            temporary: "/tmp".into(),
            site: "/site".into(),
            broker_socket: "/broker/pip".into(),
        };
        let spec =
            |config: &NativeConfig| paths.spec(config, None, Vec::new(), &paths.launch_config(config, None), None);
        let with_both = spec(&config(Some("/sys/fs/cgroup/belljar"), &["/dev/dri/renderD128"]));
        assert_eq!(with_both.control_groups.as_deref(), Some(Path::new("/sys/fs/cgroup/belljar")));
        assert_eq!(with_both.devices, [PathBuf::from("/dev/dri/renderD128")]);
        let folders: Vec<_> = with_both.folders.into_iter().map(|folder| (folder.inside, folder.source)).collect();
        assert_eq!(folders[0], (SESSION.into(), FolderSource::Host("/srv/files/one".into())));
        assert_eq!(folders.last(), Some(&("/data".into(), FolderSource::HostReadOnly("/srv/data".into()))));
        assert_eq!(with_both.links.get(Path::new(DATA_LINK)).map(PathBuf::as_path), Some(Path::new(SESSION)));
        let mut with_data = config(None, &[]);
        with_data.mounts[0].inside = DATA_LINK.into();
        assert!(spec(&with_data).links.is_empty(), "the mount takes its place");
        let without = spec(&config(None, &[]));
        assert_eq!((without.control_groups, without.devices), (None, Vec::new()));
    }
}
