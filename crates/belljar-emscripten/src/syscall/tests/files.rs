//! Tests of calls on files and directories.

use super::*;

#[test]
fn file_is_written_and_read_through_buffer_lists() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    machine.memory().write(BUFFER, b"hello, world").unwrap();
    machine.buffers(64, &[(BUFFER, 5), (0, 0), (BUFFER + 5, 7)]);
    assert_eq!(machine.wasi("fd_write", &[fd, 64, 3, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(12));
    machine.buffers(64, &[(BUFFER + 100, 4), (BUFFER + 200, 100)]);
    assert_eq!(machine.wasi("fd_pread", &[fd, 64, 2, 7, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(5));
    assert_eq!(machine.memory().slice(BUFFER + 100, 4), Ok(&b"worl"[..]));
    assert_eq!(machine.memory().slice(BUFFER + 200, 1), Ok(&b"d"[..]));
    assert_eq!(machine.wasi("fd_seek", &[fd, -5, 2, 16]), 0);
    assert_eq!(machine.memory().read_u64(16), Ok(7));
    machine.buffers(64, &[(BUFFER, 3)]);
    assert_eq!(machine.wasi("fd_pwrite", &[fd, 64, 1, 0, 8]), 0);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 8]), 0);
    assert_eq!(machine.memory().slice(BUFFER, 3), Ok(&b"wor"[..]));
    assert_eq!(machine.wasi("fd_sync", &[fd]), 0);
    assert_eq!(machine.wasi("fd_close", &[fd]), 0);
    assert_eq!(machine.wasi("fd_close", &[fd]), Errno::EBADF.positive());
}

#[test]
fn stat_has_emscriptens_layout() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"12345").unwrap();
    let path = machine.path("f");
    let times = i64::from(BUFFER);
    machine.memory().write_i64(BUFFER, 77).unwrap();
    machine.memory().write_u32(BUFFER + 8, 5).unwrap();
    machine.memory().write_i64(BUFFER + 16, -3).unwrap();
    machine.memory().write_u32(BUFFER + 24, 6).unwrap();
    assert_eq!(machine.syscall("utimensat", &[CWD, path, times, 0]), Ok(0));
    assert_eq!(machine.syscall("stat64", &[path, times]), Ok(0));
    let fd = machine.open("f");
    for (name, arguments) in [
        ("fstat64", vec![fd, times + 200]),
        ("lstat64", vec![path, times + 200]),
        ("newfstatat", vec![CWD, path, times + 200, 0x100]),
        ("newfstatat", vec![fd, 100, times + 200, 0x1000]),
    ] {
        machine.memory().slice_mut(BUFFER + 200, 96).unwrap().fill(0xff);
        assert_eq!(machine.syscall(name, &arguments), Ok(0), "{name}");
        let memory = machine.memory();
        assert_eq!(memory.slice(BUFFER, 96), memory.slice(BUFFER + 200, 96), "{name}");
    }
    let memory = machine.memory();
    assert_eq!(memory.read_u32(BUFFER + 4), Ok(0o100_644));
    assert_eq!(memory.read_u32(BUFFER + 8), Ok(1));
    assert_eq!(memory.read_u64(BUFFER + 24), Ok(5));
    assert_eq!(memory.read_u32(BUFFER + 36), Ok(1));
    assert_eq!((memory.read_i64(BUFFER + 40), memory.read_u32(BUFFER + 48)), (Ok(77), Ok(5)));
    assert_eq!((memory.read_i64(BUFFER + 56), memory.read_u32(BUFFER + 64)), (Ok(-3), Ok(6)));
    assert_ne!(memory.read_u64(BUFFER + 88), Ok(0));
    assert_eq!(machine.syscall("newfstatat", &[CWD, 100, times, 0]), refused(Errno::ENOENT));
    machine.memory().write_u32(BUFFER + 8, 1_000_000_000).unwrap();
    assert_eq!(machine.syscall("utimensat", &[CWD, path, times, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("utimensat", &[fd, 0, 0, 0]), Ok(0));
}

#[test]
fn directories_are_listed_in_records_of_280_bytes() {
    let mut machine = Machine::new();
    machine.files().write_file("/d/name", b"").unwrap();
    machine.files().create_dir_all("/d/sub").unwrap();
    let path = machine.path("/d");
    let fd = machine.syscall("openat", &[CWD, path, 0o200_000, 0]).unwrap();
    let buffer = i64::from(BUFFER);
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 279]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("getdents64", &[fd, 262_000, 560]), refused(Errno::EFAULT));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 900]), Ok(840));
    let memory = machine.memory();
    assert_eq!(memory.c_bytes(BUFFER + 19, 256), Ok(&b"."[..]));
    assert_eq!(memory.c_bytes(BUFFER + 280 + 19, 256), Ok(&b".."[..]));
    let third = BUFFER + 560;
    assert_eq!(memory.c_bytes(third + 19, 256), Ok(&b"name"[..]));
    assert_eq!(memory.read_u16(third + 16), Ok(280));
    assert_eq!(memory.read_u8(third + 18), Ok(8));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 1000]), Ok(280));
    assert_eq!(machine.memory().read_u8(BUFFER + 18), Ok(4));
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 1000]), Ok(0));
    assert_eq!(machine.wasi("fd_seek", &[fd, 0, 0, 16]), 0);
    assert_eq!(machine.syscall("getdents64", &[fd, buffer, 2000]), Ok(1120));
}

#[test]
fn paths_are_created_renamed_and_removed() {
    let mut machine = Machine::new();
    let path = machine.path("d");
    assert_eq!(machine.syscall("mkdirat", &[CWD, path, 0o755]), Ok(0));
    assert_eq!(machine.syscall("mkdirat", &[CWD, path, 0o755]), refused(Errno::EEXIST));
    let other = machine.text(OTHER_PATH, "link");
    assert_eq!(machine.syscall("symlinkat", &[path, CWD, other]), Ok(0));
    assert_eq!(machine.syscall("readlinkat", &[CWD, other, i64::from(BUFFER), 100]), Ok(1));
    assert_eq!(machine.memory().read_u8(BUFFER), Ok(b'd'));
    assert_eq!(machine.syscall("readlinkat", &[CWD, other, i64::from(BUFFER), 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("unlinkat", &[CWD, other, 1]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("unlinkat", &[CWD, other, 0]), Ok(0));
    assert_eq!(machine.syscall("renameat", &[CWD, path, CWD, other]), Ok(0));
    assert_eq!(machine.syscall("chdir", &[other]), Ok(0));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 100]), Ok(11));
    assert_eq!(machine.memory().c_bytes(BUFFER, 100), Ok(&b"/home/link"[..]));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 10]), refused(Errno::ERANGE));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 0]), refused(Errno::EINVAL));
    let path = machine.path("/home/link");
    assert_eq!(machine.syscall("rmdir", &[path]), Ok(0));
    assert_eq!(machine.syscall("getcwd", &[i64::from(BUFFER), 100]), refused(Errno::ENOENT));
    let path = machine.path("/tmp");
    let fd = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(machine.syscall("fchdir", &[fd]), Ok(0));
    let path = machine.path("file");
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o100_600, 0]), Ok(0));
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o020_600, 0]), refused(Errno::EPERM));
    assert_eq!(machine.syscall("mknodat", &[CWD, path, 0o170_000, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("umask_js", &[0o77]), Ok(0o22));
}

#[test]
fn chmod_and_faccessat_follow_permission_bits() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"").unwrap();
    let path = machine.path("f");
    assert_eq!(machine.syscall("chmod", &[path, 0o400]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 4, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 2, 0]), refused(Errno::EACCES));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 8, 0]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("fchmodat2", &[CWD, path, 0o600, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 6, 0]), Ok(0));
    let fd = machine.open("f");
    assert_eq!(machine.syscall("fchmod", &[fd, 0]), Ok(0));
    assert_eq!(machine.syscall("faccessat", &[CWD, path, 4, 0]), refused(Errno::EACCES));
    assert_eq!(machine.syscall("fchown32", &[fd, 1, 1]), Ok(0));
    assert_eq!(machine.syscall("fchownat", &[CWD, path, 1, 1, 0]), Ok(0));
    let path = machine.path("absent");
    assert_eq!(machine.syscall("fchownat", &[CWD, path, 1, 1, 0]), refused(Errno::ENOENT));
}

#[test]
fn lengths_are_set_and_checked() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    assert_eq!(machine.syscall("ftruncate64", &[fd, 100]), Ok(0));
    assert_eq!(machine.syscall("ftruncate64", &[fd, -1]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, 50, 100]), Ok(0));
    assert_eq!(machine.syscall("fallocate", &[fd, 1, 0, 1]), refused(Errno::EOPNOTSUPP));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, i64::MAX, 1]), refused(Errno::EFBIG));
    assert_eq!(machine.syscall("fallocate", &[fd, 0, 0, 0]), refused(Errno::EINVAL));
    let path = machine.path("f");
    assert_eq!(machine.files().read_file("f", 1000).unwrap().len(), 150);
    assert_eq!(machine.syscall("truncate64", &[path, 3]), Ok(0));
    assert_eq!(machine.syscall("truncate64", &[path, i64::MAX]), refused(Errno::EFBIG));
    assert_eq!(machine.syscall("fadvise64", &[fd, 0, 0, 0]), Ok(0));
    assert_eq!(machine.syscall("fdatasync", &[99]), refused(Errno::EBADF));
    assert_eq!(machine.syscall("statfs64", &[path, 84, i64::from(BUFFER)]), Ok(0));
    assert_eq!(machine.syscall("fstatfs64", &[fd, 84, i64::from(BUFFER) + 100]), Ok(0));
    let memory = machine.memory();
    assert_eq!(memory.read_u32(BUFFER + 4), Ok(4096));
    assert_eq!(memory.read_u64(BUFFER + 8), Ok(Quota::default().bytes / 4096));
    assert_eq!(memory.slice(BUFFER, 72), memory.slice(BUFFER + 100, 72));
}

#[test]
fn files_of_a_layer_are_served_like_any_other() {
    let mut machine = Machine::new();
    let mut builder = LayerBuilder::new();
    builder.file("/lib/module.py", b"print()".to_vec()).unwrap();
    machine.files().add_layer(builder.finish("layer"));
    let path = machine.path("/lib/module.py");
    let fd = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    machine.buffers(64, &[(BUFFER, 100)]);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 8]), 0);
    assert_eq!(machine.memory().slice(BUFFER, 7), Ok(&b"print()"[..]));
}
