//! Tests of quotas.

use super::*;

fn tight(bytes: u64, inodes: u32, open_files: u32) -> Filesystem {
    Filesystem::new(Quota { bytes, inodes, open_files })
}

#[test]
fn full_filesystem_accepts_a_partial_write_and_then_none() {
    let mut files = tight(4096, 10, 10);
    let fd = files.open("f", NEW).unwrap();
    assert_eq!(files.write(fd, &[1; 5000]), Ok(4096));
    assert_eq!(files.write(fd, b"x"), Err(Errno::ENOSPC));
    assert_eq!(files.write_at(fd, 0, &[2; 4096]), Ok(4096));
    files.truncate_fd(fd, 1024).unwrap();
    assert_eq!(files.usage().bytes, 1024);
    assert_eq!(files.write_at(fd, 1024, b"x"), Ok(1));
    assert_eq!(files.symlink("target", "link"), Ok(()));
    files.unlink("f").unwrap();
    files.close(fd).unwrap();
    files.unlink("link").unwrap();
    assert_eq!(files.usage(), Usage { bytes: 0, inodes: 0, open_files: 3 });
}

#[test]
fn holes_do_not_count_against_the_quota() {
    let mut files = tight(8192, 10, 10);
    let fd = files.open("f", NEW).unwrap();
    files.truncate_fd(fd, 1 << 40).unwrap();
    files.write_at(fd, 1 << 39, b"x").unwrap();
    assert_eq!(files.usage().bytes, 512);
    assert_eq!(files.stat_fd(fd).unwrap().blocks, 1);
    assert_eq!(files.read_file("f", 1 << 30).unwrap_err().errno, Errno::EFBIG);
}

#[test]
fn number_of_inodes_is_limited_and_freed_ones_are_reusable() {
    let mut files = tight(1 << 20, 3, 10);
    files.put("f", "");
    files.mkdir("d").unwrap();
    files.symlink("f", "l").unwrap();
    assert_eq!(files.open("g", NEW), Err(Errno::ENOSPC));
    assert_eq!(files.mkdir("e"), Err(Errno::ENOSPC));
    assert_eq!(files.pipe(OpenFlags::default()), Err(Errno::ENFILE));
    files.unlink("l").unwrap();
    files.rename("f", "d/f").unwrap();
    files.mkdir("e").unwrap();
    files.remove("d").unwrap();
    assert_eq!(files.usage().inodes, 1);
}

#[test]
fn open_beyond_the_descriptor_limit_creates_no_file() {
    let mut files = tight(1 << 20, 100, 5);
    files.open("a", NEW).unwrap();
    let fd = files.open("b", NEW).unwrap();
    assert_eq!(files.open("c", NEW), Err(Errno::EMFILE));
    assert_eq!(files.stat("c"), Err(Errno::ENOENT));
    assert_eq!(files.open("a", NEW.with(OpenFlags::TRUNCATE)), Err(Errno::EMFILE));
    assert_eq!(files.duplicate(1, 0, false), Err(Errno::EMFILE));
    files.close(fd).unwrap();
    assert_eq!(files.pipe(OpenFlags::default()), Err(Errno::EMFILE));
    assert_eq!(files.open("c", NEW), Ok(fd));
    assert_eq!(files.usage().open_files, 5);
}

#[test]
fn smaller_quota_keeps_files_and_lets_them_shrink() {
    let mut files = files();
    files.put("f", &"x".repeat(10_000));
    files.set_quota(Quota { bytes: 1000, inodes: 0, open_files: 1 });
    assert_eq!(files.mkdir("d"), Err(Errno::ENOSPC));
    assert_eq!(files.open("f", OpenFlags::READ_ONLY), Err(Errno::EMFILE));
    files.truncate_at("f", 100).unwrap();
    assert_eq!(files.get("f").unwrap().len(), 100);
}

#[test]
fn initial_files_do_not_count_against_the_quota() {
    assert_eq!(tight(0, 0, 3).usage(), Usage { bytes: 0, inodes: 0, open_files: 3 });
    let mut files = tight(0, 0, 3);
    files.unlink("/dev/null").unwrap();
    assert_eq!(files.usage().inodes, 0);
}
