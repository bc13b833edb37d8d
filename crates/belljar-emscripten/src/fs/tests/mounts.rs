//! Tests of mounted host directories.

use std::fs;
use std::path::Path;

use super::*;

/// Creates files with `directory` mounted at `/mnt`.
fn mounted(directory: &Path, writable: bool) -> Filesystem {
    let mut files = files();
    files.mount("/mnt", Arc::new(HostDirectory::open(directory, writable).unwrap())).unwrap();
    files
}

#[test]
fn a_read_only_mount_shows_everything_and_changes_nothing() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("sub")).unwrap();
    fs::write(host.path().join("sub/f"), "host").unwrap();
    let mut files = mounted(host.path(), false);
    assert_eq!(files.get("/mnt/sub/f").unwrap(), "host");
    assert_eq!(files.names("/mnt").unwrap(), ["sub"]);
    assert_eq!(files.names("/mnt/sub").unwrap(), ["f"]);
    let stat = files.stat("/mnt/sub/f").unwrap();
    assert_eq!((stat.size, stat.device, stat.file_type), (4, 2, FileType::Regular));
    let now = SetTime::Now;
    assert_eq!(files.open("/mnt/sub/f", OpenFlags::READ_WRITE), Err(Errno::EROFS));
    assert_eq!(files.open("/mnt/sub/f", OpenFlags::TRUNCATE), Err(Errno::EROFS));
    assert_eq!(files.open("/mnt/new", NEW), Err(Errno::EROFS));
    assert_eq!(files.mkdir("/mnt/new"), Err(Errno::EROFS));
    assert_eq!(files.unlink("/mnt/sub/f"), Err(Errno::EROFS));
    assert_eq!(files.rmdir("/mnt/sub"), Err(Errno::EROFS));
    assert_eq!(files.rename("/mnt/sub/f", "/mnt/g"), Err(Errno::EROFS));
    assert_eq!(files.symlink("f", "/mnt/l"), Err(Errno::EROFS));
    assert_eq!(files.chmod("/mnt/sub/f", 0o600), Err(Errno::EROFS));
    assert_eq!(files.truncate_at("/mnt/sub/f", 0), Err(Errno::EROFS));
    assert_eq!(files.set_times_at(AT_FDCWD, "/mnt/sub/f", now, now, true), Err(Errno::EROFS));
    let write = Access { write: true, ..Access::default() };
    assert_eq!(files.access_at(AT_FDCWD, "/mnt/sub/f", write, true), Err(Errno::EROFS));
    let fd = files.open("/mnt/sub/f", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.chmod_fd(fd, 0o600), Err(Errno::EROFS));
    assert_eq!(files.set_times_fd(fd, now, now), Err(Errno::EROFS));
    assert_eq!(fs::read(host.path().join("sub/f")).unwrap(), b"host");
}

#[test]
fn writes_to_a_mount_reach_the_host_at_once() {
    let host = tempfile::tempdir().unwrap();
    let mut files = mounted(host.path(), true);
    let fd = files.open("/mnt/f", NEW).unwrap();
    files.write(fd, b"one").unwrap();
    assert_eq!(fs::read(host.path().join("f")).unwrap(), b"one");
    fs::write(host.path().join("f"), "changed by the host").unwrap();
    assert_eq!(files.seek(fd, 0, Whence::End), Ok(19));
    assert_eq!(files.get("/mnt/f").unwrap(), "changed by the host");
    files.truncate_fd(fd, 2).unwrap();
    let append = files.open("/mnt/f", OpenFlags::WRITE_ONLY.with(OpenFlags::APPEND)).unwrap();
    files.write(append, b"!").unwrap();
    assert_eq!(fs::read(host.path().join("f")).unwrap(), b"ch!");
    files.mkdir("/mnt/d").unwrap();
    files.rename("/mnt/f", "/mnt/d/g").unwrap();
    assert!(host.path().join("d/g").exists());
    assert_eq!(files.rmdir("/mnt/d"), Err(Errno::ENOTEMPTY));
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
    files.set_times_at(AT_FDCWD, "/mnt/d/g", SetTime::Keep, SetTime::To(time), true).unwrap();
    assert_eq!(files.stat("/mnt/d/g").unwrap().times()[1], time);
    files.set_times_at(AT_FDCWD, "/mnt/d", SetTime::Keep, SetTime::To(time), true).unwrap();
    assert_eq!(files.stat("/mnt/d").unwrap().times()[1], time);
    files.chmod("/mnt/d/g", 0o4755).unwrap();
    assert_eq!(files.stat("/mnt/d/g").unwrap().mode, 0o755, "no set-user-id");
    files.unlink("/mnt/d/g").unwrap();
    files.rmdir("/mnt/d").unwrap();
    files.put("/mnt/by/host", "write_file");
    assert_eq!(fs::read(host.path().join("by/host")).unwrap(), b"write_file");
    assert_eq!(files.usage(), Usage { inodes: 1, bytes: 0, open_files: 5 });
}

#[cfg(unix)]
#[test]
fn no_path_leads_out_of_a_mount() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let host = outside.path().join("shared");
    fs::create_dir(&host).unwrap();
    fs::create_dir(host.join("sub")).unwrap();
    fs::write(host.join("inside"), "inside").unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, host.join(name)).unwrap();
    link("../secret", "relative");
    link(outside.path().join("secret").to_str().unwrap(), "absolute");
    link("..", "up");
    link("sub/../inside", "within");
    link("/etc", "etc");
    let mut files = mounted(&host, true);
    for path in ["/mnt/relative", "/mnt/absolute", "/mnt/up/secret", "/mnt/etc/passwd", "/mnt/sub/../relative"] {
        assert_eq!(files.get(path), Err(Errno::EACCES), "{path}");
        assert_eq!(files.open(path, NEW), Err(Errno::EACCES), "{path}");
    }
    assert_eq!(files.get("/mnt/within").unwrap(), "inside");
    assert_eq!(files.names("/mnt/..").unwrap(), ["dev", "home", "mnt", "tmp"]);
    assert_eq!(files.get("/mnt/../../secret"), Err(Errno::ENOENT));
    assert_eq!(&*files.read_link_at(AT_FDCWD, "/mnt/relative").unwrap(), "../secret");
    assert_eq!(files.symlink("/etc/passwd", "/mnt/planted"), Err(Errno::EPERM));
    assert_eq!(files.open("/mnt/within", OpenFlags::NO_FOLLOW), Err(Errno::ELOOP));
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn mount_point_cannot_be_moved_or_removed() {
    let host = tempfile::tempdir().unwrap();
    let mut files = mounted(host.path(), true);
    files.put("/home/f", "");
    fs::write(host.path().join("g"), "").unwrap();
    assert_eq!(files.rmdir("/mnt"), Err(Errno::EBUSY));
    assert_eq!(files.rename("/mnt", "/other"), Err(Errno::EBUSY));
    assert_eq!(files.rename("/home/f", "/mnt"), Err(Errno::EBUSY));
    assert_eq!(files.rename("/home/f", "/mnt/f"), Err(Errno::EXDEV));
    assert_eq!(files.rename("/mnt/g", "/home/g"), Err(Errno::EXDEV));
    assert_eq!(files.remove("/mnt").unwrap_err().errno, Errno::EBUSY);
    assert_eq!(files.remove("/mnt/g").unwrap_err().errno, Errno::EBUSY);
    assert!(host.path().join("g").exists());
    let again = Arc::new(HostDirectory::open(host.path(), false).unwrap());
    assert_eq!(files.mount("/mnt", again).unwrap_err().errno, Errno::EBUSY);
    let root = Arc::new(HostDirectory::open(host.path(), false).unwrap());
    assert_eq!(files.mount("/", root).unwrap_err().errno, Errno::EBUSY);
    assert_eq!(files.list("/", 100).unwrap().files.iter().filter(|file| file.path.starts_with("mnt")).count(), 1);
}

#[test]
fn the_working_directory_can_be_in_a_mount() {
    let host = tempfile::tempdir().unwrap();
    fs::create_dir(host.path().join("sub")).unwrap();
    fs::write(host.path().join("f"), "f").unwrap();
    let mut files = mounted(host.path(), false);
    files.change_directory("/mnt/sub").unwrap();
    assert_eq!(files.cwd().unwrap(), "/mnt/sub");
    assert_eq!(files.get("../f").unwrap(), "f");
    let fd = files.open("..", OpenFlags::DIRECTORY).unwrap();
    assert!(files.stat_at(fd, "f", true).is_ok());
    files.change_directory_fd(fd).unwrap();
    assert_eq!(files.cwd().unwrap(), "/mnt");
    files.change_directory("..").unwrap();
    assert_eq!(files.cwd().unwrap(), "/");
    assert_eq!(files.stat("/mnt/f/"), Err(Errno::ENOTDIR));
    assert_eq!(files.stat("/mnt/f/x"), Err(Errno::ENOTDIR));
}

#[cfg(unix)]
#[test]
fn special_host_files_are_listed_but_not_opened() {
    let host = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(host.path().join("socket")).unwrap();
    let pipe = std::ffi::CString::new(host.path().join("pipe").to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid string.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
    let mut files = mounted(host.path(), true);
    assert_eq!(files.names("/mnt").unwrap(), ["pipe", "socket"]);
    for path in ["/mnt/pipe", "/mnt/socket"] {
        assert!(files.stat(path).is_ok());
        for flags in [OpenFlags::READ_ONLY, OpenFlags::WRITE_ONLY, OpenFlags::READ_WRITE] {
            assert_eq!(files.open(path, flags), Err(Errno::EACCES), "{path}");
        }
    }
}

#[test]
fn files_of_a_mount_are_never_unmodified_layer_files() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("lib.so"), "x").unwrap();
    let mut files = mounted(host.path(), false);
    assert!(files.unmodified("/mnt/lib.so").is_none());
}

#[test]
fn mount_over_the_working_directory_is_entered() {
    let host = tempfile::tempdir().unwrap();
    fs::write(host.path().join("f"), "host").unwrap();
    let mut files = files();
    files.put("/home/hidden", "guest");
    assert!(!files.is_on_host("/home"));
    files.mount("/home", Arc::new(HostDirectory::open(host.path(), true).unwrap())).unwrap();
    assert!(files.is_on_host("/home") && files.is_on_host("/home/f"));
    assert_eq!(files.cwd().unwrap(), "/home");
    assert_eq!(files.get("f").unwrap(), "host");
    files.put("written", "relative");
    assert_eq!(fs::read(host.path().join("written")).unwrap(), b"relative");
    assert_eq!(files.names(".").unwrap(), ["f", "written"]);
    files.restart("/home").unwrap();
    assert_eq!(files.get("f").unwrap(), "host");
    // A snapshot does not contain the mount, nor its files.
    let mut loaded = files.save().load(&[], Quota::default()).unwrap();
    assert_eq!((loaded.cwd().unwrap().as_str(), loaded.get("f")), ("/home", Err(Errno::ENOENT)));
    loaded.mount("/home", Arc::new(HostDirectory::open(host.path(), true).unwrap())).unwrap();
    assert_eq!(loaded.get("f").unwrap(), "host");
}

#[cfg(unix)]
#[test]
fn host_lists_and_reads_files_of_a_mount() {
    let outer = tempfile::tempdir().unwrap();
    fs::write(outer.path().join("secret"), "secret").unwrap();
    let host = outer.path().join("host");
    fs::create_dir_all(host.join("sub/deep")).unwrap();
    fs::write(host.join("sub/f"), "0123456789").unwrap();
    std::os::unix::fs::symlink("../secret", host.join("link")).unwrap();
    std::os::unix::fs::symlink("..", host.join("up")).unwrap();
    let mut files = mounted(&host, false);
    let listing = files.list("/mnt", 100).unwrap();
    let listed: Vec<_> = listing
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.file_type, file.size))
        .filter(|one| one.1 != FileType::Link)
        .collect();
    let directory = FileType::Directory;
    assert_eq!(listed, [("sub", directory, 0), ("sub/deep", directory, 0), ("sub/f", FileType::Regular, 10)]);
    assert_eq!((listing.files.len(), listing.truncated), (5, false));
    assert_eq!(files.list("/mnt/sub", 100).unwrap().files.len(), 2);
    for limit in 0..5 {
        let listing = files.list("/mnt", limit).unwrap();
        assert!(listing.truncated && listing.files.len() <= limit, "{limit}: {listing:?}");
    }
    assert_eq!(files.read_part("/mnt/sub/f", 3, 4).unwrap(), b"3456");
    assert_eq!(files.read_part("/mnt/sub/f", 8, 100).unwrap(), b"89");
    assert_eq!(files.read_part("/mnt/sub/f", 100, 100).unwrap(), b"");
    for path in ["/mnt/link", "/mnt/up/secret"] {
        assert_eq!(files.read_part(path, 0, 100).unwrap_err().errno, Errno::EACCES, "{path}");
    }
    assert_eq!(files.read_part("/mnt/sub", 0, 1).unwrap_err().errno, Errno::EACCES);
}
