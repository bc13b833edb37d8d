//! Tests of open files.

use super::*;

#[test]
fn opening_honours_its_flags() {
    let mut files = files();
    assert_eq!(files.open("f", OpenFlags::READ_ONLY), Err(Errno::ENOENT));
    let exclusive = NEW.with(OpenFlags::EXCLUSIVE);
    let fd = files.open("f", exclusive).unwrap();
    assert_eq!(fd, 3);
    files.write(fd, b"12345").unwrap();
    assert_eq!(files.open("f", exclusive), Err(Errno::EEXIST));
    assert_eq!(files.open("f", OpenFlags(3)), Err(Errno::EINVAL));
    let fd = files.open("f", OpenFlags::WRITE_ONLY.with(OpenFlags::TRUNCATE)).unwrap();
    assert_eq!(files.stat_fd(fd).unwrap().size, 0);
    assert_eq!(files.read(fd, &mut [0; 4]), Err(Errno::EBADF));
    let fd = files.open("f", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.write(fd, b"x"), Err(Errno::EBADF));
    assert_eq!(files.truncate_fd(fd, 0), Err(Errno::EINVAL));
    assert_eq!(files.open("f", OpenFlags::DIRECTORY), Err(Errno::ENOTDIR));
    assert_eq!(files.open("/tmp", OpenFlags::WRITE_ONLY), Err(Errno::EISDIR));
    assert_eq!(files.open("/tmp", OpenFlags::CREATE), Err(Errno::EISDIR));
    let fd = files.open("/tmp", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.read(fd, &mut [0; 4]), Err(Errno::EISDIR));
}

#[test]
fn open_creates_link_targets_unless_no_follow_is_set() {
    let mut files = files();
    files.symlink("made", "link").unwrap();
    assert_eq!(files.open("link", NEW.with(OpenFlags::EXCLUSIVE)), Err(Errno::EEXIST));
    assert_eq!(files.open("link", OpenFlags::NO_FOLLOW), Err(Errno::ELOOP));
    files.open("link", NEW).unwrap();
    assert_eq!(files.lstat("made").unwrap().file_type, FileType::Regular);
}

#[test]
fn permission_bits_decide_what_can_be_opened() {
    let mut files = files();
    files.put("f", "x");
    files.chmod("f", 0o040).unwrap();
    assert!(files.open("f", OpenFlags::READ_ONLY).is_ok());
    assert_eq!(files.open("f", OpenFlags::READ_WRITE), Err(Errno::EACCES));
    assert_eq!(files.open("f", OpenFlags::TRUNCATE), Err(Errno::EACCES));
    assert_eq!(files.truncate_at("f", 0), Err(Errno::EACCES));
    files.chmod("f", 0o002).unwrap();
    assert_eq!(files.open("f", OpenFlags::READ_ONLY), Err(Errno::EACCES));
    let access = |read, write, execute| Access { read, write, execute };
    assert_eq!(files.access_at(AT_FDCWD, "f", access(false, true, false), true), Ok(()));
    assert_eq!(files.access_at(AT_FDCWD, "f", access(true, true, false), true), Err(Errno::EACCES));
    assert_eq!(files.access_at(AT_FDCWD, "f", access(false, false, true), true), Err(Errno::EACCES));
    assert_eq!(files.access_at(AT_FDCWD, "absent", Access::default(), true), Err(Errno::ENOENT));
    // The mode of a new file does not restrict the descriptor that created it.
    let fd = files.open_at(AT_FDCWD, "new", NEW, 0).unwrap();
    assert_eq!(files.write(fd, b"ok"), Ok(2));
}

#[test]
fn duplicates_share_offset_and_flags_but_not_close_on_exec() {
    let mut files = files();
    let fd = files.open("f", NEW.with(OpenFlags::CLOSE_ON_EXEC)).unwrap();
    let twin = files.duplicate(fd, 0, false).unwrap();
    files.write(fd, b"abcdef").unwrap();
    assert_eq!(files.seek(twin, 0, Whence::Current), Ok(6));
    files.seek(twin, 2, Whence::Start).unwrap();
    let mut bytes = [0; 2];
    files.read(fd, &mut bytes).unwrap();
    assert_eq!(&bytes, b"cd");
    files.set_flags(twin, OpenFlags::APPEND).unwrap();
    assert_eq!(files.flags(fd), Ok(OpenFlags::READ_WRITE.with(OpenFlags::APPEND)));
    assert_eq!(files.close_on_exec(fd), Ok(true));
    assert_eq!(files.close_on_exec(twin), Ok(false));
    files.set_close_on_exec(twin, true).unwrap();
    files.close(fd).unwrap();
    assert_eq!(files.close(fd), Err(Errno::EBADF));
    assert_eq!(files.write(twin, b"!"), Ok(1));
    assert_eq!(files.get("f").unwrap(), "abcdef!");
    // Opening the file again creates another description.
    let other = files.open("f", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.seek(other, 0, Whence::Current), Ok(0));
}

#[test]
fn dup3_closes_the_previous_descriptor() {
    let mut files = files();
    let [reader, writer] = files.pipe(OpenFlags::default()).unwrap();
    assert_eq!(files.duplicate_to(1, writer, false), Ok(writer));
    assert_eq!(files.read(reader, &mut [0; 1]), Ok(0));
    assert_eq!(files.duplicate_to(1, 40, true), Ok(40));
    assert_eq!(files.close_on_exec(40), Ok(true));
    assert_eq!(files.duplicate_to(40, 40, false), Err(Errno::EINVAL));
    assert_eq!(files.duplicate_to(77, 5, false), Err(Errno::EBADF));
    assert_eq!(files.duplicate_to(1, 1 << 20, false), Err(Errno::EBADF));
    assert_eq!(files.duplicate_to(1, -1, false), Err(Errno::EBADF));
    assert_eq!(files.duplicate(1, 41, false), Ok(41));
    assert_eq!(files.duplicate(1, 40, false), Ok(42));
    assert_eq!(files.duplicate(1, -1, false), Err(Errno::EINVAL));
    assert_eq!(files.duplicate(1, 1 << 20, false), Err(Errno::EINVAL));
}

#[test]
fn append_writes_at_the_end_whatever_the_offset() {
    let mut files = files();
    files.put("f", "start");
    let fd = files.open("f", OpenFlags::READ_WRITE.with(OpenFlags::APPEND)).unwrap();
    files.seek(fd, 1, Whence::Start).unwrap();
    files.write(fd, b"+").unwrap();
    assert_eq!(files.seek(fd, 0, Whence::Current), Ok(6));
    files.write_at(fd, 0, b"S").unwrap();
    assert_eq!(files.get("f").unwrap(), "Start+");
}

#[test]
fn seek_refuses_offsets_out_of_range() {
    let mut files = files();
    files.put("f", "12345");
    let fd = files.open("f", OpenFlags::READ_WRITE).unwrap();
    assert_eq!(files.seek(fd, -2, Whence::End), Ok(3));
    assert_eq!(files.seek(fd, -4, Whence::Current), Err(Errno::EINVAL));
    assert_eq!(files.seek(fd, i64::MAX, Whence::End), Err(Errno::EOVERFLOW));
    assert_eq!(files.seek(fd, 10, Whence::Start), Ok(10));
    assert_eq!(files.read(fd, &mut [0; 4]), Ok(0));
    files.write(fd, b"x").unwrap();
    assert_eq!(files.get("f").unwrap(), "12345\0\0\0\0\0x");
    files.seek(fd, i64::MAX, Whence::Start).unwrap();
    assert_eq!(files.write(fd, b"x"), Err(Errno::EFBIG));
    assert_eq!(files.read(fd, &mut [0; 4]), Ok(0));
    assert_eq!(files.read_at(fd, u64::MAX, &mut [0; 4]), Ok(0));
    assert_eq!(files.seek(0, 0, Whence::Current), Err(Errno::ESPIPE));
    assert_eq!(files.seek(99, 0, Whence::Current), Err(Errno::EBADF));
    assert_eq!(files.seek(-1, 0, Whence::Current), Err(Errno::EBADF));
}

#[test]
fn removed_file_is_freed_when_closed() {
    let mut files = files();
    let fd = files.open("f", NEW).unwrap();
    files.write(fd, &[1; 5000]).unwrap();
    let twin = files.duplicate(fd, 0, false).unwrap();
    files.unlink("f").unwrap();
    assert_eq!(files.stat("f"), Err(Errno::ENOENT));
    files.put("f", "another");
    assert_eq!(files.stat_fd(fd).unwrap().links, 0);
    let mut bytes = [0; 10];
    assert_eq!(files.read_at(fd, 4995, &mut bytes), Ok(5));
    let before = files.usage();
    files.close(fd).unwrap();
    assert_eq!(files.usage().bytes, before.bytes);
    files.close(twin).unwrap();
    assert_eq!(files.usage().bytes, before.bytes - 5120);
    assert_eq!(files.usage().inodes, 1);
}

#[test]
fn file_replaced_by_rename_is_freed_when_closed() {
    let mut files = files();
    files.put("old", "old");
    files.put("new", "new");
    let fd = files.open("old", OpenFlags::READ_ONLY).unwrap();
    files.rename("new", "old").unwrap();
    let mut bytes = [0; 3];
    files.read(fd, &mut bytes).unwrap();
    assert_eq!(&bytes, b"old");
    files.close(fd).unwrap();
    assert_eq!(files.usage().inodes, 1);
}

#[test]
fn truncate_shortens_and_extends() {
    let mut files = files();
    files.put("f", "123456");
    files.truncate_at("f", 3).unwrap();
    files.truncate_at("f", 5).unwrap();
    assert_eq!(files.get("f").unwrap(), "123\0\0");
    let fd = files.open("f", OpenFlags::WRITE_ONLY).unwrap();
    files.truncate_fd(fd, 1).unwrap();
    files.allocate(fd, 2).unwrap();
    files.allocate(fd, 1).unwrap();
    assert_eq!(files.get("f").unwrap(), "1\0");
    assert_eq!(files.allocate(fd, 1 << 40), Err(Errno::ENOSPC));
    assert_eq!(files.truncate_fd(fd, u64::MAX), Err(Errno::EFBIG));
    assert_eq!(files.truncate_at("/tmp", 0), Err(Errno::EISDIR));
    assert_eq!(files.truncate_at("/dev/null", 0), Err(Errno::EINVAL));
}

#[test]
fn devices_behave_as_on_linux() {
    let mut files = files();
    let mut bytes = [7; 64];
    let null = files.open("/dev/null", OpenFlags::READ_WRITE.with(OpenFlags::TRUNCATE)).unwrap();
    assert_eq!(files.read(null, &mut bytes), Ok(0));
    assert_eq!(files.write(null, &bytes), Ok(64));
    let zero = files.open("/dev/zero", OpenFlags::READ_ONLY).unwrap();
    assert_eq!(files.read(zero, &mut bytes), Ok(64));
    assert_eq!(bytes, [0; 64]);
    let random = files.open("/dev/urandom", OpenFlags::READ_ONLY).unwrap();
    files.read(random, &mut bytes).unwrap();
    let first = bytes;
    files.read(random, &mut bytes).unwrap();
    assert_ne!(bytes, first);
    assert_eq!(files.device(1), Ok(Some(Device::Stdout)));
    let console = files.open("/dev/stderr", OpenFlags::WRITE_ONLY).unwrap();
    assert_eq!(files.device(console), Ok(Some(Device::Stderr)));
    assert_eq!(files.stat("/dev/null").unwrap().special, 0x103);
    assert_eq!(files.stat("/dev/null").unwrap().file_type, FileType::CharacterDevice);
}

#[test]
fn a_pipe_passes_bytes_until_one_end_is_closed() {
    let mut files = files();
    let [reader, writer] = files.pipe(OpenFlags::CLOSE_ON_EXEC).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(files.read(reader, &mut bytes), Err(Errno::EAGAIN));
    assert_eq!(files.readiness(reader), Ok(Readiness::default()));
    files.write(writer, b"abc").unwrap();
    assert_eq!(files.bytes_to_read(reader), Ok(3));
    assert!(files.readiness(reader).unwrap().readable);
    assert_eq!(files.read(reader, &mut bytes[..2]), Ok(2));
    assert_eq!(files.read(reader, &mut bytes), Ok(1));
    assert_eq!(files.read_at(reader, 0, &mut bytes), Err(Errno::ESPIPE));
    assert_eq!(files.seek(writer, 0, Whence::Start), Err(Errno::ESPIPE));
    assert_eq!(files.read(writer, &mut bytes), Err(Errno::EBADF));
    let twin = files.duplicate(writer, 0, false).unwrap();
    files.close(writer).unwrap();
    assert_eq!(files.read(reader, &mut bytes), Err(Errno::EAGAIN));
    files.close(twin).unwrap();
    assert_eq!(files.read(reader, &mut bytes), Ok(0));
    assert!(files.readiness(reader).unwrap().hung_up);
    files.close(reader).unwrap();
    let [reader, writer] = files.pipe(OpenFlags::default()).unwrap();
    files.close(reader).unwrap();
    assert_eq!(files.write(writer, b"x"), Err(Errno::EPIPE));
    assert!(files.readiness(writer).unwrap().broken);
    files.close(writer).unwrap();
    assert_eq!(files.usage().inodes, 0);
}

#[test]
fn full_pipe_refuses_writes() {
    let mut files = files();
    let [reader, writer] = files.pipe(OpenFlags::default()).unwrap();
    assert_eq!(files.write(writer, &[1; 65_000]), Ok(65_000));
    // Short writes are never split, long ones are.
    assert_eq!(files.write(writer, &[1; 4096]), Err(Errno::EAGAIN));
    assert_eq!(files.write(writer, &[1; 5000]), Ok(536));
    assert_eq!(files.write(writer, &[1]), Err(Errno::EAGAIN));
    assert!(!files.readiness(writer).unwrap().writable);
    files.read(reader, &mut [0; 100]).unwrap();
    assert_eq!(files.write(writer, &[1; 100]), Ok(100));
}

#[test]
fn listing_continues_after_concurrent_changes() {
    let mut files = files();
    for name in ["a", "b", "c", "d", "e"] {
        files.put(&format!("/d/{name}"), "");
    }
    let fd = files.open("/d", OpenFlags::DIRECTORY).unwrap();
    let names = |entries: Vec<DirectoryEntry>| entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>();
    let first = files.read_directory(fd, 4).unwrap();
    assert_eq!(first[3].next, 4);
    assert_eq!(names(first), [".", "..", "a", "b"]);
    files.unlink("/d/b").unwrap();
    files.unlink("/d/c").unwrap();
    files.put("/d/aa", "");
    files.put("/d/f", "");
    assert_eq!(names(files.read_directory(fd, 9).unwrap()), ["d", "e", "f"]);
    assert!(files.read_directory(fd, 9).unwrap().is_empty());
    files.seek(fd, 0, Whence::Start).unwrap();
    assert_eq!(files.read_directory(fd, 99).unwrap().len(), 7);
    files.seek(fd, 3, Whence::Start).unwrap();
    assert_eq!(names(files.read_directory(fd, 2).unwrap()), ["aa", "d"]);
    files.seek(fd, i64::MAX, Whence::Start).unwrap();
    assert!(files.read_directory(fd, 2).unwrap().is_empty());
    assert_eq!(files.read_directory(1, 2), Err(Errno::ENOTDIR));
}

#[test]
fn listed_inode_numbers_are_those_of_stat() {
    let mut files = files();
    files.put("/d/f", "");
    files.mkdir("/d/sub").unwrap();
    let fd = files.open("/d", OpenFlags::DIRECTORY).unwrap();
    for entry in files.read_directory(fd, 9).unwrap() {
        let stat = files.stat(&format!("/d/{}", entry.name)).unwrap();
        assert_eq!((stat.ino, stat.file_type), (entry.ino, entry.file_type), "{}", entry.name);
    }
}
