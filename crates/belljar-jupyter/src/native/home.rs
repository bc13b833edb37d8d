//! Where a session lives: its folders, its packages, and the sandbox around them. A home outlives the kernel's process, so
//! that a restart finds the session's files.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use belljar_core::Limits;
use tempfile::TempDir;

use crate::native::client::connection;
use crate::native::folder::Folder;
use crate::native::installer::Installer;
use crate::native::nursery::{Nursery, Plan, Process, Teller};
use crate::native::pip::Broker;
use crate::native::sandbox::{self, Policy, Sandbox, Source, Spec};
use crate::native::site::Site;
use crate::native::wire::message::Key;
use crate::native::wire::path::open_folder;

/// Where a session's files are inside of a sandbox.
const SESSION: &str = "/session";
/// Where its kernel listens inside of a sandbox.
const SOCKETS: &str = "/kernel";
/// What the sockets' folder holds.
const SOCKETS_BYTES: u64 = 1 << 20;
const SOCKETS_FILES: u64 = 64;
/// Most bytes of a folder's path that sockets are made in: a socket's address has 108.
const LONGEST: usize = 96;

/// What all homes have in common.
pub(crate) struct Ground {
    /// Where they are made, on the host.
    pub(crate) root: TempDir,
    /// The guest's code, on the host and, at the same path, inside.
    pub(crate) code: PathBuf,
    /// matplotlib's list of fonts, likewise.
    pub(crate) fonts: PathBuf,
    /// The environment's Python.
    pub(crate) python: PathBuf,
    pub(crate) policy: Policy,
    pub(crate) limits: Limits,
    pub(crate) color: bool,
    /// Where each sandbox has a control group of its own, if such a folder was delegated to us.
    pub(crate) control_groups: Option<PathBuf>,
    /// Devices of the host that sessions may use.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) installer: Option<Installer>,
}

/// What holds a session's processes.
enum Shelter {
    /// A sandbox that stands, and that kernels enter.
    Standing(Box<Sandbox>),
    /// One that is made around each kernel.
    Each(Box<Spec>),
    /// Nothing.
    None,
}

/// A session's place.
pub(crate) struct Home {
    shelter: Shelter,
    folder: Folder,
    sockets: Folder,
    /// The same, to resolve names in.
    sockets_folder: OwnedFd,
    /// As the kernel sees it.
    plan: Plan,
    broker: Broker,
    /// Folders on the host; deleted at last.
    _host: TempDir,
}

impl Home {
    /// Makes one. `nursery` is whose kernels are to live there; without one each kernel is a program.
    ///
    /// # Errors
    /// In words, when the sandbox does not stand or the folders cannot be made.
    pub(crate) fn new(ground: &Ground, nursery: Option<&Nursery>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("a session's folders cannot be made: {error}");
        let host = tempfile::Builder::new().prefix("s").tempdir_in(ground.root.path()).map_err(failed)?;
        // Whoever is inside comes through, and sees no names.
        set_mode(host.path(), 0o711).map_err(failed)?;
        let make = |name: &str| -> std::io::Result<PathBuf> {
            let path = host.path().join(name);
            std::fs::create_dir(&path)?;
            set_mode(&path, 0o755)?;
            Ok(path)
        };
        let (site, doors) = (make("site").map_err(failed)?, make("doors").map_err(failed)?);
        let installing = Site::new(site.clone(), make("before").map_err(failed)?, make("incoming").map_err(failed)?);
        let broker = Broker::new(&doors.join("pip"), installing, ground.installer.clone()).map_err(failed)?;
        let user = (ground.policy != Policy::Unsandboxed).then(new_user).flatten();
        let in_memory = ground.policy == Policy::Full && nursery.is_some();
        let inside = |path: PathBuf| path.display().to_string();
        let (session, sockets, temporary) = if in_memory {
            (SESSION.to_owned(), SOCKETS.to_owned(), "/tmp".to_owned())
        } else {
            let own = |name: &str| -> std::io::Result<String> {
                let path = make(name)?;
                set_mode(&path, 0o700)?;
                if user.is_some() {
                    std::os::unix::fs::chown(&path, user, user)?;
                }
                Ok(inside(path))
            };
            (own("session").map_err(failed)?, own("k").map_err(failed)?, own("tmp").map_err(failed)?)
        };
        if sockets.len() > LONGEST {
            return Err(format!("{sockets} is too long a path for sockets: set TMPDIR to a shorter one"));
        }
        let places = Places { session, sockets, temporary, site, broker: doors.join("pip") };
        let plan = places.plan(ground);
        let shelter = match (ground.policy, nursery) {
            (Policy::Unsandboxed, _) => Shelter::None,
            (Policy::Full, Some(nursery)) => {
                let spec = places.spec(ground, user, nursery.prefixes().to_vec(), &plan);
                let streams = sandbox::Streams::default();
                Shelter::Standing(Box::new(
                    sandbox::spawn(&spec, ground.policy, streams).map_err(|error| error.to_string())?,
                ))
            }
            (Policy::Full | Policy::Weak, _) => {
                let prefixes = prefixes(&ground.python).map_err(failed)?;
                Shelter::Each(Box::new(places.spec(ground, user, prefixes, &plan)))
            }
        };
        let open = |path: &str| -> Result<OwnedFd, String> {
            match &shelter {
                Shelter::Standing(sandbox) => {
                    let folder = sandbox.folder(Path::new(path)).ok_or("the sandbox lacks a folder")?;
                    folder.try_clone_to_owned().map_err(failed)
                }
                _ => open_folder(Path::new(path)).map_err(failed),
            }
        };
        let folder = Folder::new(open(&places.session)?, user, ground.limits.disk);
        let sockets = Folder::new(open(&places.sockets)?, user, SOCKETS_BYTES);
        let sockets_folder = open(&places.sockets)?;
        Ok(Self { shelter, folder, sockets, sockets_folder, plan, broker, _host: host })
    }

    /// The session's files.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Where the kernel makes its sockets.
    pub(crate) fn sockets(&self) -> &OwnedFd {
        &self.sockets_folder
    }

    /// Who serves the session's pip.
    pub(crate) fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    /// Whether the sandbox ended what ran for taking too much memory, since this was last asked.
    pub(crate) fn exceeded_memory(&mut self) -> bool {
        match &mut self.shelter {
            Shelter::Standing(sandbox) => sandbox.exceeded_memory(),
            Shelter::Each(_) | Shelter::None => false,
        }
    }

    /// Starts a kernel here. There must be none.
    ///
    /// # Errors
    /// In words, when it does not start.
    pub(crate) fn start(
        &mut self,
        ground: &Ground,
        nursery: Option<&Nursery>,
        key: &Key,
        until: Instant,
    ) -> Result<Process, String> {
        let plan = Plan { connection: connection(&self.plan.sockets, key), ..self.plan.clone() };
        let ended = || "there is no process to fork kernels from".to_owned();
        match &self.shelter {
            Shelter::Standing(sandbox) => nursery.ok_or_else(ended)?.enter(&plan, sandbox, until),
            Shelter::None => nursery.ok_or_else(ended)?.bear(&plan, until),
            Shelter::Each(spec) => {
                // Arguments can be read by everybody on the machine, and the plan has the kernel's key.
                let input = said(&plan).map_err(|error| error.to_string())?;
                let mut spec = (**spec).clone();
                let begin = ground.code.join("begin.py");
                spec.arguments = vec![ground.python.clone().into(), "-I".into(), begin.into(), "--kernel".into()];
                let streams = sandbox::Streams { input: Some(input), ..sandbox::Streams::default() };
                let sandbox = sandbox::spawn(&spec, ground.policy, streams);
                let sandbox = sandbox.map_err(|error| error.to_string())?;
                let process = sandbox.program().ok_or("the sandbox runs no program")?;
                let process = process.try_clone_to_owned().map_err(|error| error.to_string())?;
                Ok(Process::new(process, None, Teller::Sandbox(Box::new(Mutex::new(sandbox)))))
            }
        }
    }

    /// Ends whatever still runs, and makes room for another kernel.
    ///
    /// # Errors
    /// In words, when the sandbox is gone.
    pub(crate) fn vacate(&mut self) -> Result<(), String> {
        if let Shelter::Standing(sandbox) = &mut self.shelter {
            sandbox
                .empty()
                .map_err(|error| format!("the session's sandbox is gone, and its files with it: {error}"))?;
        }
        self.sockets.clear().map_err(|error| format!("the kernel's sockets cannot be cleared away: {error}"))
    }
}

/// Paths as the kernel sees them; those of the host are the same inside.
struct Places {
    session: String,
    sockets: String,
    temporary: String,
    site: PathBuf,
    broker: PathBuf,
}

impl Places {
    fn plan(&self, ground: &Ground) -> Plan {
        let text = |path: &Path| path.display().to_string();
        let bin = ground.python.parent().map(text).unwrap_or_default();
        let environment = ground.python.parent().and_then(Path::parent).map(text).unwrap_or_default();
        let code = text(&ground.code);
        let variables = [
            ("PATH", format!("{code}/bin:{bin}:/usr/local/bin:/usr/bin:/bin")),
            ("LANG", "C.UTF-8".into()),
            ("HOME", self.session.clone()),
            ("TMPDIR", self.temporary.clone()),
            ("VIRTUAL_ENV", environment),
            ("PYTHONPATH", format!("{code}/shadow:{}", text(&self.site))),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
            ("IPYTHONDIR", format!("{}/ipython", self.temporary)),
            ("MPLCONFIGDIR", format!("{}/matplotlib", self.temporary)),
            ("MPLBACKEND", "module://matplotlib_inline.backend_inline".into()),
            ("BELLJAR_CODE", code.clone()),
            ("BELLJAR_SITE", text(&self.site)),
            ("BELLJAR_BROKER", text(&self.broker)),
        ];
        Plan {
            environment: variables.map(|(name, value)| (name.to_owned(), value)).into(),
            directory: self.session.clone(),
            code,
            site: text(&self.site),
            sockets: self.sockets.clone(),
            fonts: text(&ground.fonts),
            color: ground.color,
            network: ground.policy != Policy::Weak,
            connection: serde_json::Value::Null,
        }
    }

    fn spec(&self, ground: &Ground, user: Option<u32>, mut readable: Vec<PathBuf>, plan: &Plan) -> Spec {
        let Limits { memory, disk, files, .. } = ground.limits;
        let doors = self.broker.parent().map(Path::to_path_buf);
        readable.extend([ground.code.clone(), ground.fonts.clone(), self.site.clone()].into_iter().chain(doors));
        // What is below `/usr` is seen anyway.
        readable.retain(|path| !path.starts_with("/usr"));
        let folder = |inside: &str, bytes: u64, files: u64| {
            let is_host = Path::new(inside).starts_with(ground.root.path());
            let source = if is_host { Source::Host(inside.into()) } else { Source::Memory { bytes, files } };
            sandbox::Folder { inside: inside.into(), source }
        };
        let mut folders =
            vec![folder(&self.session, disk, u64::from(files)), folder(&self.sockets, SOCKETS_BYTES, SOCKETS_FILES)];
        if self.temporary != "/tmp" {
            folders.push(folder(&self.temporary, disk, u64::from(files)));
        }
        Spec {
            environment: plan.environment.clone(),
            directory: self.session.clone().into(),
            user,
            readable,
            folders,
            devices: ground.devices.clone(),
            control_groups: ground.control_groups.clone(),
            limits: sandbox::Limits { memory_bytes: Some(memory), file_bytes: disk, ..sandbox::Limits::default() },
            ..Spec::waiting()
        }
    }
}

/// A user that no other session of this process has, if we may choose. Another process begins elsewhere.
pub(crate) fn new_user() -> Option<u32> {
    static FIRST: LazyLock<u32> = LazyLock::new(|| uuid::Uuid::new_v4().as_fields().0);
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let users = sandbox::SESSION_USERS;
    let next = || FIRST.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % (users.end - users.start);
    rustix::process::geteuid().is_root().then(|| users.start + next())
}

/// Standard input that says a plan. It fits into a pipe, of which the one end is closed.
fn said(plan: &Plan) -> std::io::Result<OwnedFd> {
    let (reader, writer) = std::io::pipe()?;
    let mut writer = std::fs::File::from(OwnedFd::from(writer));
    rustix::io::ioctl_fionbio(&writer, true)?;
    writer.write_all(&serde_json::to_vec(plan)?)?;
    Ok(reader.into())
}

/// Folders that Python and its packages are in, where no nursery says so.
fn prefixes(python: &Path) -> std::io::Result<Vec<PathBuf>> {
    let script = "import sys; print(sys.prefix); print(sys.base_prefix); print(sys.exec_prefix)";
    let output = std::process::Command::new(python).args(["-I", "-c", script]).env_clear().output()?;
    let mut prefixes: Vec<PathBuf> = String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect();
    prefixes.sort();
    prefixes.dedup();
    Ok(prefixes)
}

pub(crate) fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// How long a kernel may take to start, on a busy machine.
pub(crate) const START: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_gets_a_control_group_and_devices_where_there_are_some() {
        let ground = |control_groups: Option<&str>, devices: &[&str]| Ground {
            root: tempfile::tempdir().unwrap(),
            code: "/code".into(),
            fonts: "/fonts".into(),
            python: "/environment/bin/python".into(),
            policy: Policy::Full,
            limits: Limits::default(),
            color: false,
            control_groups: control_groups.map(PathBuf::from),
            devices: devices.iter().map(PathBuf::from).collect(),
            installer: None,
        };
        let places = Places {
            session: SESSION.into(),
            sockets: SOCKETS.into(),
            temporary: "/tmp".into(),
            site: "/site".into(),
            broker: "/doors/pip".into(),
        };
        let spec = |ground: &Ground| places.spec(ground, None, Vec::new(), &places.plan(ground));
        let rich = spec(&ground(Some("/sys/fs/cgroup/belljar"), &["/dev/dri/renderD128"]));
        assert_eq!(rich.control_groups.as_deref(), Some(Path::new("/sys/fs/cgroup/belljar")));
        assert_eq!(rich.devices, [PathBuf::from("/dev/dri/renderD128")]);
        let poor = spec(&ground(None, &[]));
        assert_eq!((poor.control_groups, poor.devices), (None, Vec::new()));
    }

    #[test]
    fn no_two_sessions_have_one_user() {
        let users: Vec<_> = (0..1000).filter_map(|_| new_user()).collect();
        let mut different = users.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), users.len());
        assert!(users.iter().all(|user| sandbox::SESSION_USERS.contains(user)));
    }
}
