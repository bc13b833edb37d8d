//! The files that the code sees: a root of its own in memory, read-only, with what the code needs bound into it.
//!
//! Whatever is bound is opened first, by path alone (`O_PATH`), and then mounted from its descriptor. So it does not
//! matter that the new root is put together on top of a folder which holds some of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::calls::{self, MountAttributes};
use super::spec::Source;
use super::{Failure, Spec, Step};

/// Folders on top of which a root can be put together: the first one that exists.
const PLACES: [&str; 5] = ["/tmp", "/mnt", "/var", "/run", "/home"];

/// Folders at the top of a system; links to `/usr` on most.
const TOP: [&str; 6] = ["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

/// Of the host's settings, what libraries look for, and Debian's browser. Those that are missing are missing inside.
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

/// Settings of the sandbox's own. The user has the number that [`super::namespaces`] gives it.
const OWN_SETTINGS: [(&str, &str); 4] = [
    ("passwd", "user:x:1000:1000::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
    ("group", "user:x:1000:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
];

/// Devices that have no state and reach nothing. `/dev/tty` is the caller's own terminal, of which it has none.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that tell about the machine and not about the code.
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

/// Processors, which libraries of threads count.
const PROCESSORS: &str = "/sys/devices/system/cpu";

/// Something of the host that is to be bound.
struct Binding {
    /// Where, as an absolute path inside.
    inside: PathBuf,
    source: File,
    is_folder: bool,
    attributes: MountAttributes,
}

impl Binding {
    /// Opens `source` for what is to be at `inside`. A last part that is a link is followed if the path is the
    /// operator's, and not if it is a session's folder.
    fn open(source: &Path, inside: &Path, attributes: MountAttributes, follow: bool) -> io::Result<Self> {
        let flags = libc::O_PATH | if follow { 0 } else { libc::O_NOFOLLOW | libc::O_DIRECTORY };
        let source = OpenOptions::new().read(true).custom_flags(flags).open(source)?;
        let is_folder = source.metadata()?.is_dir();
        Ok(Self { inside: inside.to_owned(), source, is_folder, attributes })
    }

    /// Mounts it below `root`.
    fn mount(&self, root: &Path) -> Result<(), Failure> {
        let target = below(root, &self.inside);
        let wrong = |error| Failure::new(Step::Path, format!("showing {}", self.inside.display()), &error);
        if self.is_folder {
            fs::create_dir_all(&target).map_err(wrong)?;
        } else {
            target.parent().map_or(Ok(()), fs::create_dir_all).map_err(wrong)?;
            OpenOptions::new().append(true).create(true).open(&target).map_err(wrong)?;
        }
        bind(&descriptor_path(&self.source), &target).map_err(wrong)?;
        calls::set_mount_attributes(&target, self.attributes, true).map_err(wrong)
    }
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn bind(source: &Path, target: &Path) -> io::Result<()> {
    calls::mount(source, target, "none", libc::MS_BIND | libc::MS_REC, "")
}

/// `inside`, an absolute path, below `root`.
fn below(root: &Path, inside: &Path) -> PathBuf {
    root.join(inside.strip_prefix("/").unwrap_or(inside))
}

/// A folder that something can be mounted over.
fn place() -> Result<&'static Path, Failure> {
    let found = PLACES.iter().map(Path::new).find(|path| path.is_dir());
    found.ok_or_else(|| Failure::plain(Step::Root, format!("none of {} is a folder", PLACES.join(", "))))
}

/// No change to mounts from here on is seen outside, nor the other way round.
pub(super) fn keep_mounts_private() -> Result<(), Failure> {
    calls::mount(Path::new("none"), Path::new("/"), "none", libc::MS_REC | libc::MS_PRIVATE, "")
        .map_err(|error| Failure::new(Step::Root, "making mounts private", &error))
}

/// As root, in a mount namespace of its own: puts the paths that `spec` names where every user can reach them, and
/// names them there. A virtual environment in `/root`, which only root may enter, is seen by the session's user this
/// way.
pub(super) fn lend(spec: &mut Spec) -> Result<Lent, Failure> {
    let place = place()?;
    let mut lent = Vec::new();
    for path in &spec.readable {
        lent.push(open_readable(path)?);
    }
    for folder in &spec.folders {
        if let Source::Host(path) = &folder.source {
            lent.push(open_folder(path, &folder.inside)?);
        }
    }
    let wrong = |error| Failure::new(Step::Root, "lending paths to the session's user", &error);
    calls::mount(Path::new("tmpfs"), place, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV, "size=256k,mode=755")
        .map_err(wrong)?;
    let mut places = Vec::new();
    for (number, binding) in lent.iter().enumerate() {
        let target = place.join(number.to_string());
        if binding.is_folder {
            fs::create_dir(&target).map_err(wrong)?;
        } else {
            File::create(&target).map_err(wrong)?;
        }
        bind(&descriptor_path(&binding.source), &target)
            .map_err(|error| Failure::new(Step::Path, format!("lending {}", binding.inside.display()), &error))?;
        places.push(target);
    }
    let folders = places.split_off(spec.readable.len());
    let mut folders = folders.into_iter();
    for folder in &mut spec.folders {
        if let Source::Host(path) = &mut folder.source
            && let Some(place) = folders.next()
        {
            *path = place;
        }
    }
    Ok(Lent { readable: Some(places) })
}

/// Where the readable paths of a [`Spec`] are to be taken from, if not from where they are named.
#[derive(Default)]
pub(super) struct Lent {
    readable: Option<Vec<PathBuf>>,
}

fn open_readable(path: &Path) -> Result<Binding, Failure> {
    Binding::open(path, path, MountAttributes::SEALED, true)
        .map_err(|error| Failure::new(Step::Path, format!("opening {}", path.display()), &error))
}

fn open_folder(source: &Path, inside: &Path) -> Result<Binding, Failure> {
    Binding::open(source, inside, MountAttributes::WRITABLE, false)
        .map_err(|error| Failure::new(Step::Path, format!("opening {}", source.display()), &error))
}

/// Puts the root together and enters it. Answers the folders in it that can be written to.
///
/// Must run in the process with number 1 of its namespace, since `/proc` shows the namespace of whoever mounts it.
pub(super) fn enter(spec: &Spec, lent: &Lent) -> Result<Vec<PathBuf>, Failure> {
    let root = place()?;
    let step = |doing: &'static str| move |error: io::Error| Failure::new(Step::Root, doing, &error);
    let bindings = bindings(spec, lent)?;
    let top = top()?;
    let devices = devices(spec)?;

    memory(root, "size=1m,nr_inodes=4096,mode=755", 0).map_err(step("mounting the root"))?;
    for entry in top {
        match entry {
            Top::Link { name, to } => symlink(to, root.join(name)).map_err(step("making links to /usr"))?,
            Top::Folder(binding) => binding.mount(root)?,
        }
    }
    own_settings(root).map_err(step("writing settings"))?;
    own_devices(root, spec, &devices)?;
    let limits = &spec.limits;
    let tmp = format!("size={},nr_inodes={},mode=1777", limits.tmp_bytes, limits.tmp_files);
    fs::create_dir(root.join("tmp")).map_err(step("making /tmp"))?;
    memory(&root.join("tmp"), &tmp, 0).map_err(step("mounting /tmp"))?;

    let mut writable = vec![PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    for mounted in bindings {
        match mounted {
            Mounted::Bound(binding) => binding.mount(root)?,
            Mounted::Memory { inside, bytes, files } => {
                let target = below(root, &inside);
                fs::create_dir_all(&target).map_err(step("making a folder"))?;
                memory(&target, &format!("size={bytes},nr_inodes={files},mode=700"), 0)
                    .map_err(step("mounting a folder in memory"))?;
            }
        }
    }
    writable.extend(spec.folders.iter().map(|folder| folder.inside.clone()));
    own_proc(root)?;

    calls::pivot_into(root).map_err(step("entering the root"))?;
    calls::set_mount_attributes(Path::new("/dev"), MountAttributes::READ_ONLY, false).map_err(step("sealing /dev"))?;
    calls::set_mount_attributes(Path::new("/"), MountAttributes::SEALED, false).map_err(step("sealing the root"))?;
    Ok(writable)
}

/// What the spec wants mounted, parents before what is in them.
enum Mounted {
    Bound(Binding),
    Memory { inside: PathBuf, bytes: u64, files: u64 },
}

impl Mounted {
    fn depth(&self) -> usize {
        match self {
            Self::Bound(binding) => binding.inside.components().count(),
            Self::Memory { inside, .. } => inside.components().count(),
        }
    }
}

fn bindings(spec: &Spec, lent: &Lent) -> Result<Vec<Mounted>, Failure> {
    let mut all = Vec::new();
    for path in SETTINGS.iter().chain(&[PROCESSORS]).map(Path::new) {
        // What is missing on the host is missing inside.
        if let Ok(binding) = Binding::open(path, path, MountAttributes::INERT, true) {
            all.push(Mounted::Bound(binding));
        }
    }
    all.push(Mounted::Bound(open_readable(Path::new("/usr"))?));
    for (number, inside) in spec.readable.iter().enumerate() {
        if inside.starts_with("/usr") {
            continue;
        }
        let source = lent.readable.as_ref().and_then(|lent| lent.get(number)).unwrap_or(inside);
        let mut binding = open_readable(source)?;
        binding.inside.clone_from(inside);
        all.push(Mounted::Bound(binding));
    }
    for folder in &spec.folders {
        let inside = folder.inside.clone();
        all.push(match &folder.source {
            Source::Host(source) => Mounted::Bound(open_folder(source, &inside)?),
            Source::Memory { bytes, files } => Mounted::Memory { inside, bytes: *bytes, files: *files },
        });
    }
    all.sort_by_key(Mounted::depth);
    Ok(all)
}

/// What stands at the top of the host's system besides `/usr`.
enum Top {
    Link { name: &'static str, to: PathBuf },
    Folder(Binding),
}

fn top() -> Result<Vec<Top>, Failure> {
    let mut all = Vec::new();
    for name in TOP {
        let path = Path::new("/").join(name);
        if let Ok(to) = fs::read_link(&path) {
            all.push(Top::Link { name, to });
        } else if path.is_dir() {
            all.push(Top::Folder(open_readable(&path)?));
        }
    }
    Ok(all)
}

/// What is to be in `/dev`: the sandbox's own, as far as the host has them, and those that are handed in.
fn devices(spec: &Spec) -> Result<Vec<Binding>, Failure> {
    let own = DEVICES.map(|name| Path::new("/dev").join(name));
    let mut all: Vec<_> =
        own.iter().filter_map(|path| Binding::open(path, path, MountAttributes::DEVICE, true).ok()).collect();
    for path in spec.devices.iter().filter(|path| !own.contains(path)) {
        let wrong = |error| Failure::new(Step::Path, format!("opening {}", path.display()), &error);
        let device = Binding::open(path, path, MountAttributes::DEVICE, true).map_err(wrong)?;
        if !device.source.metadata().map_err(wrong)?.file_type().is_char_device() {
            return Err(Failure::plain(Step::Path, format!("{} is no character device any more", path.display())));
        }
        all.push(device);
    }
    Ok(all)
}

/// A file system in memory; `kept_out` are flags of `mount(2)` besides those that all have.
fn memory(target: &Path, options: &str, kept_out: u64) -> io::Result<()> {
    calls::mount(Path::new("tmpfs"), target, "tmpfs", libc::MS_NOSUID | libc::MS_NODEV | kept_out, options)
}

fn own_settings(root: &Path) -> io::Result<()> {
    let folder = root.join("etc");
    fs::create_dir(&folder)?;
    for (name, text) in OWN_SETTINGS {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}

fn own_devices(root: &Path, spec: &Spec, devices: &[Binding]) -> Result<(), Failure> {
    let folder = root.join("dev");
    let step = |error: io::Error| Failure::new(Step::Root, "making /dev", &error);
    fs::create_dir(&folder).map_err(step)?;
    memory(&folder, "size=64k,nr_inodes=64,mode=755", libc::MS_NOEXEC).map_err(step)?;
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
    memory(&shared, &options, libc::MS_NOEXEC).map_err(step)?;
    fs::create_dir(&terminals).map_err(step)?;
    let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
    calls::mount(Path::new("devpts"), &terminals, "devpts", flags, "newinstance,ptmxmode=0666,mode=620,max=64")
        .map_err(|error| Failure::new(Step::Root, "mounting /dev/pts", &error))
}

fn own_proc(root: &Path) -> Result<(), Failure> {
    let folder = root.join("proc");
    let step = |doing: &'static str| move |error: io::Error| Failure::new(Step::Proc, doing, &error);
    fs::create_dir(&folder).map_err(step("making /proc"))?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    calls::mount(Path::new("proc"), &folder, "proc", flags, "").map_err(step("mounting /proc"))?;
    // Namespaces within would give the code capabilities again, if only over things of its own.
    fs::write(folder.join("sys/user/max_user_namespaces"), "0")
        .map_err(|error| Failure::new(Step::NestedNamespaces, "setting user.max_user_namespaces to 0", &error))?;
    for name in HIDDEN {
        let path = folder.join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            calls::mount(Path::new("tmpfs"), &path, "tmpfs", flags | libc::MS_RDONLY, "size=0,nr_inodes=1,mode=755")
        } else {
            bind(&root.join("dev/null"), &path)
        }
        .map_err(step("hiding the machine's part of /proc"))?;
    }
    calls::set_mount_attributes(&folder, MountAttributes::READ_ONLY, true).map_err(step("sealing /proc"))
}
