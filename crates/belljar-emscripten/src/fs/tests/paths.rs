//! Tests of path resolution.

use super::*;

#[test]
fn dot_dot_is_the_parent_of_the_link_target() {
    let mut files = files();
    files.mkdir("/a").unwrap();
    files.mkdir("/a/b").unwrap();
    files.put("/a/here", "inside");
    files.put("/here", "outside");
    files.symlink("/a/b", "/link").unwrap();
    assert_eq!(files.get("/link/../here").unwrap(), "inside");
    assert_eq!(files.get("/../../here").unwrap(), "outside");
    assert_eq!(files.get("/absent/../here"), Err(Errno::ENOENT));
    assert_eq!(files.get("/here/../here"), Err(Errno::ENOTDIR));
}

#[test]
fn relative_paths_follow_a_renamed_directory_descriptor() {
    let mut files = files();
    files.put("/a/x", "x");
    let fd = files.open("/a", OpenFlags::DIRECTORY).unwrap();
    files.rename("/a", "/b").unwrap();
    assert!(files.stat_at(fd, "x", true).is_ok());
    assert_eq!(files.stat_at(fd, "../a/x", true), Err(Errno::ENOENT));
    let file = files.open("/b/x", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.stat_at(file, "x", true), Err(Errno::ENOTDIR));
    assert!(files.stat_at(file, "/b/x", true).is_ok());
    assert_eq!(files.stat_at(99, "x", true), Err(Errno::EBADF));
}

#[test]
fn links_are_followed_forty_times_and_no_more() {
    let mut files = files();
    files.put("/l0", "end");
    for at in 1..=41 {
        files.symlink(&format!("l{}", at - 1), &format!("/l{at}")).unwrap();
    }
    assert_eq!(files.get("/l40").unwrap(), "end");
    assert_eq!(files.get("/l41"), Err(Errno::ELOOP));
    files.symlink("self", "/self").unwrap();
    assert_eq!(files.stat("/self"), Err(Errno::ELOOP));
    assert!(files.lstat("/self").is_ok());
    files.symlink("loop/loop/loop", "/loop").unwrap();
    assert_eq!(files.stat("/loop"), Err(Errno::ELOOP));
}

#[test]
fn a_slash_at_the_end_asks_for_a_directory() {
    let mut files = files();
    files.put("file", "");
    files.mkdir("directory/").unwrap();
    files.symlink("file", "to-file").unwrap();
    files.symlink("directory/", "to-directory").unwrap();
    assert_eq!(files.stat("file/"), Err(Errno::ENOTDIR));
    assert_eq!(files.stat("file/."), Err(Errno::ENOTDIR));
    assert_eq!(files.lstat("to-file/"), Err(Errno::ENOTDIR));
    assert_eq!(files.lstat("to-directory/").unwrap().file_type, FileType::Directory);
    assert_eq!(files.lstat("to-directory").unwrap().file_type, FileType::Link);
    assert_eq!(files.open("new/", NEW), Err(Errno::EISDIR));
    assert_eq!(files.unlink("file/"), Err(Errno::ENOTDIR));
    assert_eq!(files.rename("file", "other/"), Err(Errno::ENOTDIR));
    files.rename("directory/", "moved/").unwrap();
    files.rmdir("moved/").unwrap();
}

#[test]
fn names_and_paths_have_a_longest_length() {
    let mut files = files();
    let longest = "n".repeat(NAME_MAX);
    files.put(&longest, "");
    assert_eq!(files.mkdir(&format!("{longest}n")), Err(Errno::ENAMETOOLONG));
    assert_eq!(files.stat(&format!("{longest}n/x")), Err(Errno::ENAMETOOLONG));
    assert!(files.stat(&"/.".repeat(2047)).is_ok());
    assert_eq!(files.stat(&"/.".repeat(2048)), Err(Errno::ENAMETOOLONG));
    assert_eq!(files.stat(""), Err(Errno::ENOENT));
    assert_eq!(files.symlink(&"t".repeat(PATH_MAX), "link"), Err(Errno::ENAMETOOLONG));
    assert_eq!(files.symlink("", "link"), Err(Errno::ENOENT));
}

#[test]
fn tree_deeper_than_the_longest_path_is_supported() {
    let mut files = files();
    files.change_directory("/tmp").unwrap();
    for _ in 0..20_000 {
        files.mkdir("d").unwrap();
        files.change_directory("d").unwrap();
    }
    assert_eq!(files.cwd(), Err(Errno::ERANGE));
    let listing = files.list("/tmp", 100_000).unwrap();
    assert_eq!(listing.files.len(), PATH_MAX / 2);
    let mut copy = files.clone().save().load(&[], Quota::default()).unwrap();
    copy.change_directory("/").unwrap();
    copy.remove("/tmp/d").unwrap();
    assert_eq!(copy.usage().inodes, 0);
    files.change_directory("/").unwrap();
    assert_eq!(files.usage().inodes, 20_000);
}

#[test]
fn removed_working_directory_cannot_be_used() {
    let mut files = files();
    files.mkdir("/tmp/gone").unwrap();
    files.change_directory("/tmp/gone").unwrap();
    assert_eq!(files.cwd().unwrap(), "/tmp/gone");
    files.rmdir("/tmp/gone").unwrap();
    assert_eq!(files.usage().inodes, 1);
    assert_eq!(files.cwd(), Err(Errno::ENOENT));
    assert_eq!(files.open("new", NEW), Err(Errno::ENOENT));
    assert_eq!(files.stat(".."), Err(Errno::ENOENT));
    assert!(files.stat(".").is_ok());
    files.change_directory("/").unwrap();
    assert_eq!(files.usage().inodes, 0);
}

#[test]
fn directories_without_execute_bits_are_not_searched() {
    let mut files = files();
    files.put("/d/f", "");
    files.chmod("/d", 0o666).unwrap();
    assert_eq!(files.stat("/d/f"), Err(Errno::EACCES));
    assert_eq!(files.stat("/d/absent"), Err(Errno::EACCES));
    assert_eq!(files.change_directory("/d"), Err(Errno::EACCES));
    assert_eq!(files.names("/d").unwrap(), ["f"]);
    // Any of the three bits suffices, whichever class it is for.
    files.chmod("/d", 0o001).unwrap();
    assert!(files.stat("/d/f").is_ok());
    assert_eq!(files.open("/d", OpenFlags::READ_ONLY), Err(Errno::EACCES));
    assert_eq!(files.unlink("/d/f"), Err(Errno::EACCES));
    assert_eq!(files.open("/d/new", NEW), Err(Errno::EACCES));
    assert_eq!(files.rename("/d/f", "/f"), Err(Errno::EACCES));
    files.chmod("/d", 0o300).unwrap();
    files.unlink("/d/f").unwrap();
}
