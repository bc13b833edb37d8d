//! Tests of the host's operations on the guest's files.

use super::*;

#[test]
fn the_host_writes_over_and_into_new_directories() {
    let mut files = files();
    files.put("/a/b/c", "first");
    files.put("/a/b/c", "2nd");
    assert_eq!(files.get("/a/b/c").unwrap(), "2nd");
    files.put("relative", "in the working directory");
    assert!(files.stat("/home/relative").is_ok());
    let error = files.write_file("/a/b", b"").unwrap_err();
    assert_eq!(error, FileError { path: "/a/b".into(), errno: Errno::EISDIR });
    assert_eq!(error.to_string(), "`/a/b`: is a directory");
    assert_eq!(files.write_file("/dev/null", b"x").unwrap_err().errno, Errno::EINVAL);
    assert_eq!(files.write_file("/a/b/c/d", b"x").unwrap_err().errno, Errno::ENOTDIR);
}

#[test]
fn a_write_that_does_not_fit_changes_nothing() {
    let mut files = Filesystem::new(Quota { bytes: 1024, ..Quota::default() });
    files.put("f", "small");
    assert_eq!(files.write_file("f", &[0; 1025]).unwrap_err().errno, Errno::ENOSPC);
    assert_eq!(files.get("f").unwrap(), "small");
    assert_eq!(files.write_file("g", &[0; 1024]).unwrap_err().errno, Errno::ENOSPC);
    assert_eq!(files.stat("g"), Err(Errno::ENOENT));
    files.write_file("f", &[0; 1024]).unwrap();
    assert_eq!(files.usage().bytes, 1024);
}

#[test]
fn permission_bits_apply_to_the_guest_but_not_the_host() {
    let mut files = files();
    files.put("/d/f", "secret");
    files.chmod("/d/f", 0).unwrap();
    files.chmod("/d", 0).unwrap();
    assert_eq!(files.get("/d/f").unwrap(), "secret");
    assert_eq!(files.list("/d", 9).unwrap().files.len(), 1);
    assert!(files.read_file("/absent", 1).is_err());
    assert_eq!(files.open("/d/f", OpenFlags::READ_ONLY), Err(Errno::EACCES));
    files.remove("/d").unwrap();
}

#[test]
fn reading_stops_at_the_limit_given() {
    let mut files = files();
    files.put("f", "12345");
    assert_eq!(files.read_file("f", 5).unwrap(), b"12345");
    assert_eq!(files.read_file("f", 4).unwrap_err().errno, Errno::EFBIG);
    assert_eq!(files.read_file("/tmp", 4).unwrap_err().errno, Errno::EISDIR);
}

#[test]
fn listing_is_recursive_and_bounded() {
    let mut files = files();
    files.put("/d/a/x", "12");
    files.put("/d/b", "1");
    files.symlink("/d", "/d/loop").unwrap();
    let listing = files.list("/d", 100).unwrap();
    let shown: Vec<_> = listing.files.iter().map(|file| (file.path.as_str(), file.file_type, file.size)).collect();
    let expected = [
        ("a", FileType::Directory, 0),
        ("a/x", FileType::Regular, 2),
        ("b", FileType::Regular, 1),
        ("loop", FileType::Link, 2),
    ];
    assert_eq!(shown, expected);
    assert!(!listing.truncated);
    assert!(files.list("/d", 2).unwrap().truncated);
    assert_eq!(files.list("/d/b", 2).unwrap_err().errno, Errno::ENOTDIR);
}

#[test]
fn create_dir_all_creates_parents_and_accepts_existing() {
    let mut files = files();
    files.create_dir_all("/x/y/z").unwrap();
    files.create_dir_all("/x/y/z/").unwrap();
    files.create_dir_all("/").unwrap();
    files.put("/x/f", "");
    assert_eq!(files.create_dir_all("/x/f/g").unwrap_err().errno, Errno::ENOTDIR);
    files.set_cwd("/x/y").unwrap();
    assert_eq!(files.cwd().unwrap(), "/x/y");
    assert_eq!(files.set_cwd("/x/f").unwrap_err().errno, Errno::ENOTDIR);
}

#[test]
fn copies_of_a_filesystem_are_independent() {
    let mut one = files();
    one.put("f", "shared");
    let fd = one.open("f", OpenFlags::READ_WRITE).unwrap();
    one.read(fd, &mut [0; 3]).unwrap();
    let mut two = one.clone();
    one.write(fd, b"ONE").unwrap();
    two.write(fd, b"TWO").unwrap();
    two.put("only-two", "");
    assert_eq!(one.get("f").unwrap(), "shaONE");
    assert_eq!(two.get("f").unwrap(), "shaTWO");
    assert_eq!(one.names("/home").unwrap(), ["f"]);
}
