//! Tests of creating, removing and renaming.

use super::*;

#[test]
fn directories_are_made_once_and_removed_when_empty() {
    let mut files = files();
    files.mkdir("d").unwrap();
    assert_eq!(files.mkdir("d"), Err(Errno::EEXIST));
    assert_eq!(files.mkdir("/"), Err(Errno::EEXIST));
    assert_eq!(files.mkdir("d/."), Err(Errno::EEXIST));
    assert_eq!(files.mkdir("absent/d"), Err(Errno::ENOENT));
    files.put("d/f", "");
    assert_eq!(files.mkdir("d/f/x"), Err(Errno::ENOTDIR));
    assert_eq!(files.rmdir("d"), Err(Errno::ENOTEMPTY));
    assert_eq!(files.rmdir("d/f"), Err(Errno::ENOTDIR));
    assert_eq!(files.rmdir("d/."), Err(Errno::EINVAL));
    assert_eq!(files.rmdir("d/.."), Err(Errno::ENOTEMPTY));
    assert_eq!(files.rmdir("/"), Err(Errno::EBUSY));
    assert_eq!(files.unlink("d"), Err(Errno::EISDIR));
    files.unlink("d/f").unwrap();
    assert_eq!(files.unlink("d/f"), Err(Errno::ENOENT));
    files.rmdir("d").unwrap();
    assert_eq!(files.rmdir("d"), Err(Errno::ENOENT));
}

#[test]
fn umask_clears_bits_of_new_files_and_directories() {
    let mut files = files();
    assert_eq!(files.set_umask(0o077), 0o022);
    let fd = files.open("f", NEW).unwrap();
    assert_eq!(files.stat_fd(fd).unwrap().mode, 0o600);
    files.mkdir("d").unwrap();
    assert_eq!(files.stat("d").unwrap().mode, 0o700);
    assert_eq!(files.set_umask(0o7777), 0o077);
    assert_eq!(files.set_umask(0), 0o777);
}

#[test]
fn rename_replaces_files_and_empty_directories() {
    let mut files = files();
    files.put("a", "a");
    files.put("b", "b");
    files.rename("a", "b").unwrap();
    assert_eq!(files.get("b").unwrap(), "a");
    assert_eq!(files.get("a"), Err(Errno::ENOENT));
    files.rename("b", "b").unwrap();
    files.mkdir("empty").unwrap();
    files.mkdir("full").unwrap();
    files.put("full/x", "");
    assert_eq!(files.rename("b", "empty"), Err(Errno::EISDIR));
    assert_eq!(files.rename("empty", "b"), Err(Errno::ENOTDIR));
    assert_eq!(files.rename("empty", "full"), Err(Errno::ENOTEMPTY));
    assert_eq!(files.rename("full/x", "full"), Err(Errno::ENOTEMPTY));
    files.rename("full", "empty").unwrap();
    assert_eq!(files.names("/home").unwrap(), ["b", "empty"]);
    assert_eq!(files.rename("absent", "b"), Err(Errno::ENOENT));
    assert_eq!(files.rename("b", "absent/b"), Err(Errno::ENOENT));
    assert_eq!(files.rename(".", "x"), Err(Errno::EBUSY));
    assert_eq!(files.rename("b", "empty/.."), Err(Errno::EBUSY));
}

#[test]
fn a_directory_cannot_be_moved_into_itself() {
    let mut files = files();
    files.create_dir_all("a/b/c").unwrap();
    assert_eq!(files.rename("a", "a/b/c/d"), Err(Errno::EINVAL));
    assert_eq!(files.rename("a", "a/b"), Err(Errno::EINVAL));
    assert_eq!(files.rename("a/b/c", "a"), Err(Errno::ENOTEMPTY));
    files.symlink("a/b", "link").unwrap();
    assert_eq!(files.rename("a", "link/x"), Err(Errno::EINVAL));
    files.rename("a/b", "b").unwrap();
    files.change_directory("b/c").unwrap();
    files.change_directory("../..").unwrap();
    assert_eq!(files.cwd().unwrap(), "/home");
}

#[test]
fn rename_and_unlink_act_on_links_not_targets() {
    let mut files = files();
    files.put("target", "t");
    files.symlink("target", "link").unwrap();
    files.rename("link", "moved").unwrap();
    assert_eq!(&*files.read_link_at(AT_FDCWD, "moved").unwrap(), "target");
    assert_eq!(files.read_link_at(AT_FDCWD, "target"), Err(Errno::EINVAL));
    files.put("other", "o");
    files.rename("other", "moved").unwrap();
    assert_eq!(files.get("target").unwrap(), "t");
    assert_eq!(files.lstat("moved").unwrap().file_type, FileType::Regular);
    files.symlink("absent", "dangling").unwrap();
    assert_eq!(files.symlink("x", "dangling"), Err(Errno::EEXIST));
    files.unlink("dangling").unwrap();
}

#[test]
fn changing_a_directory_changes_its_time() {
    let mut files = files();
    let old = SetTime::To(Timestamp { seconds: 5, nanoseconds: 6 });
    let steps: [fn(&mut Filesystem); 4] = [
        |files| files.mkdir("d/new").unwrap(),
        |files| files.rename("d/new", "d/newer").unwrap(),
        |files| files.rename("d/newer", "out").unwrap(),
        |files| files.rename("out", "d/back").unwrap(),
    ];
    files.mkdir("d").unwrap();
    for step in steps {
        files.set_times_at(AT_FDCWD, "d", old, old, true).unwrap();
        step(&mut files);
        assert!(files.stat("d").unwrap().times()[1].seconds > 5);
    }
}

#[test]
fn times_are_set_omitted_and_taken_from_the_clock() {
    let mut files = files();
    files.put("f", "");
    files.symlink("f", "link").unwrap();
    let (early, late) = (Timestamp { seconds: -7, nanoseconds: 1 }, Timestamp { seconds: 1 << 40, nanoseconds: 2 });
    files.set_times_at(AT_FDCWD, "link", SetTime::To(early), SetTime::To(late), true).unwrap();
    assert_eq!(files.stat("f").unwrap().times()[..2], [early, late]);
    assert_ne!(files.lstat("link").unwrap().times()[1], late);
    files.set_times_at(AT_FDCWD, "f", SetTime::Now, SetTime::Keep, true).unwrap();
    let [accessed, modified, _] = files.stat("f").unwrap().times();
    assert!(accessed.seconds > 1_600_000_000);
    assert_eq!(modified, late);
}

#[test]
fn mknod_creates_regular_files() {
    let mut files = files();
    files.make_file_at(AT_FDCWD, "plain", 0o600).unwrap();
    assert_eq!(files.stat("plain").unwrap().mode, 0o600);
    assert_eq!(files.make_file_at(AT_FDCWD, "plain", 0o600), Err(Errno::EEXIST));
}
