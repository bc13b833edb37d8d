//! The root that the code sees: a read-only tmpfs, into which files of the host are bind-mounted.
//!
//! The sources of bind mounts are opened first (`O_PATH`), and then mounted from their descriptors. So they may lie
//! below the folder on top of which the new root is built.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::error::{Step, StepFailure};
use crate::socket_memory;
use crate::spec::{FolderSource, Spec};
use crate::syscalls::{self, MountAttributes};

/// Folders on top of which a root can be built. The first one that exists is used.
const MOUNT_POINTS: [&str; 5] = ["/tmp", "/mnt", "/var", "/run", "/home"];

/// Folders in the root of the host that most distributions replace by links to `/usr`.
const ROOT_ENTRIES: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

/// The settings of the host that libraries and Debian's browser read. Files that are missing on the host are missing
/// inside.
const SETTINGS: [&str; 9] = [
    "/etc/alternatives",
    "/etc/chromium.d",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
];

/// The settings that are the same in all sandboxes. The user ID is [`crate::namespaces::INSIDE_USER`].
const OWN_SETTINGS: [(&str, &str); 4] = [
    ("passwd", "user:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
    ("group", "user:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// Devices without state that give access to nothing. `/dev/tty` is the terminal of the process that opens it; the code
/// has none.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that describe the machine and not the code.
const HIDDEN: [&str; 17] = [
    "acpi",
    "asound",
    "bus",
    "cmdline",
    "config.gz",
    "driver",
    "irq",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
];

/// The processors, which thread libraries count.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// A file or folder of the host that will be bind-mounted.
struct Binding {
    /// The absolute path inside.
    inside: PathBuf,
    source: File,
    is_folder: bool,
    attributes: MountAttributes,
}

impl Binding {
    /// Opens `source`, to be mounted at `inside`. A link in the last component is followed for paths of the operator
    /// (`follow`), and not for a session's folder.
    fn open(source: &Path, inside: &Path, attributes: MountAttributes, follow: bool) -> io::Result<Self> {
        let flags = libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW | libc::O_DIRECTORY };
        let source = OpenOptions::new().read(true).custom_flags(flags).open(source)?;
        let is_folder = source.metadata()?.is_dir();
        Ok(Self { inside: inside.to_owned(), source, is_folder, attributes })
    }

    /// Mounts the binding below `root`.
    fn mount(&self, root: &Path) -> Result<(), StepFailure> {
        let target = below(root, &self.inside);
        let wrong = |error| StepFailure::new(Step::Path, format!("binding {}", self.inside.display()), &error);
        if self.is_folder {
            fs::create_dir_all(&target).map_err(wrong)?;
        } else {
            target.parent().map_or(Ok(()), fs::create_dir_all).map_err(wrong)?;
            OpenOptions::new().append(true).create(true).open(&target).map_err(wrong)?;
        }
        bind(&descriptor_path(&self.source), &target).map_err(wrong)?;
        syscalls::set_mount_attributes(&target, self.attributes, true).map_err(wrong)
    }
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    syscalls::mount(source, target, "none", libc::MS_BIND | libc::MS_REC, "")
}

/// Returns the absolute path `inside`, below `root`.
fn below(root: &Path, inside: &Path) -> PathBuf {
    root.join(inside.strip_prefix("/").unwrap_or(inside))
}

/// Returns a folder of the host that can be mounted over.
fn mount_point() -> Result<&'static Path, StepFailure> {
    let found = MOUNT_POINTS.iter().map(Path::new).find(|path| path.is_dir());
    found
        .ok_or_else(|| StepFailure::from_reason(Step::Root, format!("none of {} is a folder", MOUNT_POINTS.join(", "))))
}

/// Stops the propagation of later mounts, to the host and from it.
pub(crate) fn make_mounts_private() -> Result<(), StepFailure> {
    syscalls::mount(Path::new("none"), Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")
        .map_err(|error| StepFailure::new(Step::Root, "making mounts private", &error))
}

/// Binds the paths that `spec` names below a folder that every user can reach, and replaces the folders in `spec` by
/// those paths. So the session's user can read a virtual environment in `/root`, which only root may enter. Called by
/// root, in a new mount namespace.
pub(crate) fn stage_readable_paths(spec: &mut Spec) -> Result<StagedPaths, StepFailure> {
    let mount_point = mount_point()?;
    let mut bindings = Vec::new();
    for path in &spec.readable {
        bindings.push(open_readable(path)?);
    }
    for folder in &spec.folders {
        if let Some(path) = folder.source.host_path() {
            bindings.push(open_folder(path, &folder.inside, &folder.source)?);
        }
    }
    let wrong = |error| StepFailure::new(Step::Root, "staging paths for the session's user", &error);
    syscalls::mount(Path::new("tmpfs"), mount_point, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "size=256k,mode=755")
        .map_err(wrong)?;
    let mut readable = Vec::new();
    for (number, binding) in bindings.iter().enumerate() {
        let target = mount_point.join(number.to_string());
        if binding.is_folder {
            fs::create_dir(&target).map_err(wrong)?;
        } else {
            File::create(&target).map_err(wrong)?;
        }
        bind(&descriptor_path(&binding.source), &target)
            .map_err(|error| StepFailure::new(Step::Path, format!("staging {}", binding.inside.display()), &error))?;
        readable.push(target);
    }
    let mut folders = readable.split_off(spec.readable.len()).into_iter();
    for folder in &mut spec.folders {
        if let FolderSource::Host(path) | FolderSource::HostReadOnly(path) = &mut folder.source
            && let Some(staged) = folders.next()
        {
            *path = staged;
        }
    }
    Ok(StagedPaths { readable: Some(readable) })
}

/// The sources of the readable paths of a [`Spec`], if they differ from the paths themselves.
#[derive(Default)]
pub(crate) struct StagedPaths {
    readable: Option<Vec<PathBuf>>,
}

fn open_readable(path: &Path) -> Result<Binding, StepFailure> {
    Binding::open(path, path, MountAttributes::READ_ONLY_NOSUID_NODEV, true)
        .map_err(|error| StepFailure::new(Step::Path, format!("opening {}", path.display()), &error))
}

fn open_folder(path: &Path, inside: &Path, source: &FolderSource) -> Result<Binding, StepFailure> {
    let attributes =
        if source.is_writable() { MountAttributes::WRITABLE } else { MountAttributes::READ_ONLY_NOSUID_NODEV };
    Binding::open(path, inside, attributes, false)
        .map_err(|error| StepFailure::new(Step::Path, format!("opening {}", path.display()), &error))
}

/// Builds the root and enters it. Returns the folders in it that the code can write to.
///
/// Must run in the process with number 1 of its namespace, since `/proc` shows the process namespace of the process
/// that mounts it.
pub(crate) fn pivot_root(spec: &Spec, staged: &StagedPaths) -> Result<Vec<PathBuf>, StepFailure> {
    let root = mount_point()?;
    let step = |doing: &'static str| move |error: io::Error| StepFailure::new(Step::Root, doing, &error);
    let mounts = mounts(spec, staged)?;
    let entries = root_entries()?;
    let devices = devices(spec)?;

    mount_tmpfs(root, "size=1m,nr_inodes=4096,mode=755", 0).map_err(step("mounting the root"))?;
    for entry in entries {
        match entry {
            RootEntry::Link { name, to } => symlink(to, root.join(name)).map_err(step("creating links to /usr"))?,
            RootEntry::Folder(binding) => binding.mount(root)?,
        }
    }
    write_settings(root).map_err(step("writing settings"))?;
    build_dev(root, spec, &devices)?;
    let limits = &spec.limits;
    let tmp = format!("size={},nr_inodes={},mode=1777", limits.tmp_bytes, limits.tmp_files);
    fs::create_dir(root.join("tmp")).map_err(step("creating /tmp"))?;
    mount_tmpfs(&root.join("tmp"), &tmp, 0).map_err(step("mounting /tmp"))?;

    // Before the mounts: a folder of the host must not get a link.
    for (path, target) in &spec.links {
        let link = below(root, path);
        let made = link.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| symlink(target, &link));
        made.map_err(step("creating a link"))?;
    }
    let mut writable = vec![PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    for mount in mounts {
        match mount {
            Mount::Bind(binding) => binding.mount(root)?,
            Mount::Memory { inside, bytes, files } => {
                let target = below(root, &inside);
                fs::create_dir_all(&target).map_err(step("creating a folder"))?;
                mount_tmpfs(&target, &format!("size={bytes},nr_inodes={files},mode=700"), 0)
                    .map_err(step("mounting a folder in memory"))?;
            }
        }
    }
    writable.extend(spec.folders.iter().filter(|folder| folder.source.is_writable()).map(|one| one.inside.clone()));
    build_proc(root)?;

    syscalls::pivot_root(root).map_err(step("entering the root"))?;
    syscalls::set_mount_attributes(Path::new("/dev"), MountAttributes::READ_ONLY, false)
        .map_err(step("making /dev read-only"))?;
    syscalls::set_mount_attributes(Path::new("/"), MountAttributes::READ_ONLY_NOSUID_NODEV, false)
        .map_err(step("making the root read-only"))?;
    Ok(writable)
}

/// A mount that a spec asks for.
enum Mount {
    Bind(Binding),
    Memory { inside: PathBuf, bytes: u64, files: u64 },
}

impl Mount {
    fn depth(&self) -> usize {
        match self {
            Self::Bind(binding) => binding.inside.components().count(),
            Self::Memory { inside, .. } => inside.components().count(),
        }
    }
}

/// Returns the mounts of `spec`, parents before the mounts in them.
fn mounts(spec: &Spec, staged: &StagedPaths) -> Result<Vec<Mount>, StepFailure> {
    let mut all = Vec::new();
    for path in SETTINGS.iter().chain(&[PROCESSORS]).map(Path::new) {
        // Files that are missing on the host are missing inside.
        if let Ok(binding) = Binding::open(path, path, MountAttributes::READ_ONLY_NOSUID_NODEV_NOEXEC, true) {
            all.push(Mount::Bind(binding));
        }
    }
    all.push(Mount::Bind(open_readable(Path::new("/usr"))?));
    for (number, inside) in spec.readable.iter().enumerate() {
        if inside.starts_with("/usr") {
            continue;
        }
        let source = staged.readable.as_ref().and_then(|staged| staged.get(number)).unwrap_or(inside);
        let mut binding = open_readable(source)?;
        binding.inside.clone_from(inside);
        all.push(Mount::Bind(binding));
    }
    for folder in &spec.folders {
        let inside = folder.inside.clone();
        all.push(match &folder.source {
            FolderSource::Host(path) | FolderSource::HostReadOnly(path) => {
                Mount::Bind(open_folder(path, &inside, &folder.source)?)
            }
            FolderSource::Memory { bytes, files } => Mount::Memory { inside, bytes: *bytes, files: *files },
        });
    }
    all.sort_by_key(Mount::depth);
    Ok(all)
}

/// An entry of the host's root, in addition to `/usr`.
enum RootEntry {
    Link { name: &'static str, to: PathBuf },
    Folder(Binding),
}

fn root_entries() -> Result<Vec<RootEntry>, StepFailure> {
    let mut all = Vec::new();
    for name in ROOT_ENTRIES {
        let path = Path::new("/").join(name);
        if let Ok(to) = fs::read_link(&path) {
            all.push(RootEntry::Link { name, to });
        } else if path.is_dir() {
            all.push(RootEntry::Folder(open_readable(&path)?));
        }
    }
    Ok(all)
}

/// Opens the devices for `/dev`: those of every sandbox that the host has, and those of `spec`.
fn devices(spec: &Spec) -> Result<Vec<Binding>, StepFailure> {
    let own = DEVICES.map(|name| Path::new("/dev").join(name));
    let mut all: Vec<_> =
        own.iter().filter_map(|path| Binding::open(path, path, MountAttributes::DEVICE, true).ok()).collect();
    for path in spec.devices.iter().filter(|path| !own.contains(path)) {
        let wrong = |error| StepFailure::new(Step::Path, format!("opening {}", path.display()), &error);
        let device = Binding::open(path, path, MountAttributes::DEVICE, true).map_err(wrong)?;
        if !device.source.metadata().map_err(wrong)?.file_type().is_char_device() {
            return Err(StepFailure::from_reason(
                Step::Path,
                format!("{} is no longer a character device", path.display()),
            ));
        }
        all.push(device);
    }
    Ok(all)
}

/// Mounts a tmpfs; `more_flags` are added to the flags of `mount(2)` that all have.
fn mount_tmpfs(target: &Path, options: &str, more_flags: u64) -> io::Result<()> {
    syscalls::mount(Path::new("tmpfs"), target, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV | more_flags, options)
}

fn write_settings(root: &Path) -> io::Result<()> {
    let folder = root.join("etc");
    fs::create_dir(&folder)?;
    for (name, text) in OWN_SETTINGS {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn build_dev(root: &Path, spec: &Spec, devices: &[Binding]) -> Result<(), StepFailure> {
    let folder = root.join("dev");
    let step = |error: io::Error| StepFailure::new(Step::Root, "building /dev", &error);
    fs::create_dir(&folder).map_err(step)?;
    mount_tmpfs(&folder, "size=64k,nr_inodes=64,mode=755", libc::MS_NOEXEC).map_err(step)?;
    for device in devices {
        device.mount(root)?;
    }
    for (name, to) in [("stdin", "0"), ("stdout", "1"), ("stderr", "2")] {
        symlink(format!("/proc/self/fd/{to}"), folder.join(name)).map_err(step)?;
    }
    symlink("/proc/self/fd", folder.join("fd")).map_err(step)?;
    symlink("pts/ptmx", folder.join("ptmx")).map_err(step)?;
    let (shared, terminals) = (folder.join("shm"), folder.join("pts"));
    fs::create_dir(&shared).map_err(step)?;
    let limits = &spec.limits;
    let options = format!("size={},nr_inodes={},mode=1777", limits.shared_bytes, limits.tmp_files);
    mount_tmpfs(&shared, &options, libc::MS_NOEXEC).map_err(step)?;
    fs::create_dir(&terminals).map_err(step)?;
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    syscalls::mount(Path::new("devpts"), &terminals, "devpts", flags, "newinstance,ptmxmode=0666,mode=620,max=64")
        .map_err(|error| StepFailure::new(Step::Root, "mounting /dev/pts", &error))
}

fn build_proc(root: &Path) -> Result<(), StepFailure> {
    let folder = root.join("proc");
    let step = |doing: &'static str| move |error: io::Error| StepFailure::new(Step::Proc, doing, &error);
    fs::create_dir(&folder).map_err(step("creating /proc"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    syscalls::mount(Path::new("proc"), &folder, "proc", flags, "").map_err(step("mounting /proc"))?;
    // Nested namespaces would give the code capabilities again, even if only over its own objects.
    fs::write(folder.join("sys/user/max_user_namespaces"), "0")
        .map_err(|error| StepFailure::new(Step::NestedNamespaces, "setting user.max_user_namespaces to 0", &error))?;
    for (name, value) in socket_memory::SETTINGS {
        let path = folder.join("sys/net").join(name);
        fs::write(&path, value)
            .map_err(|error| StepFailure::new(Step::Proc, format!("setting net/{name} to {value}"), &error))?;
    }
    for name in HIDDEN {
        let path = folder.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            syscalls::mount(Path::new("tmpfs"), &path, "tmpfs", flags | libc::MS_RDONLY, "size=0,nr_inodes=1,mode=755")
        } else {
            bind(&root.join("dev/null"), &path)
        }
        .map_err(step("hiding the machine's part of /proc"))?;
    }
    syscalls::set_mount_attributes(&folder, MountAttributes::READ_ONLY, true).map_err(step("making /proc read-only"))
}
