//! Tests of calls on descriptors: control, waiting, the console, mappings.

use super::*;

#[test]
fn output_is_written_up_to_the_console_limit() {
    let mut machine = Machine::new();
    machine.memory().write(BUFFER, &[b'x'; 60]).unwrap();
    machine.buffers(64, &[(BUFFER, 60)]);
    assert_eq!(machine.wasi("fd_write", &[1, 64, 1, 8]), 0);
    assert_eq!(machine.wasi("fd_write", &[0, 64, 1, 8]), Errno::EBADF.positive());
    assert_eq!(machine.wasi("fd_pwrite", &[1, 64, 1, 0, 8]), Errno::ESPIPE.positive());
    let ended = machine.call(WASI, "fd_write", &[2, 64, 1, 8]).unwrap_err();
    assert_eq!(ended.downcast_ref(), Some(&Termination::OutputLimit { limit: 100 }));
    let expected = [(Stream::Stdout, vec![b'x'; 60]), (Stream::Stderr, vec![b'x'; 40])];
    assert_eq!(machine.output.take(), expected);
}

#[test]
fn console_input_is_read_up_to_its_end() {
    let mut machine = Machine::with_input("line\n");
    machine.buffers(64, &[(BUFFER, 3), (BUFFER + 3, 100)]);
    assert_eq!(machine.wasi("fd_read", &[0, 64, 2, 8]), 0);
    assert_eq!(machine.memory().read_u32(8), Ok(3));
    machine.buffers(64, &[(BUFFER, 100)]);
    for expected in [2, 0] {
        assert_eq!(machine.wasi("fd_read", &[0, 64, 1, 8]), 0);
        assert_eq!(machine.memory().read_u32(8), Ok(expected));
    }
    assert_eq!(machine.wasi("fd_read", &[1, 64, 1, 8]), Errno::EBADF.positive());
    assert_eq!(machine.wasi("fd_pread", &[0, 64, 1, 0, 8]), Errno::ESPIPE.positive());
    let path = machine.path("/dev/stdin");
    let again = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(machine.wasi("fd_read", &[again, 64, 1, 8]), 0);
}

#[test]
fn fcntl_and_ioctl_support_common_commands() {
    let mut machine = Machine::new();
    let fd = machine.open("f");
    let varargs = 64;
    let fcntl = |machine: &mut Machine, command: i64, argument: u32| {
        machine.memory().write_u32(64, argument).unwrap();
        machine.syscall("fcntl64", &[fd, command, varargs])
    };
    assert_eq!(fcntl(&mut machine, 3, 0), Ok(2));
    assert_eq!(fcntl(&mut machine, 4, 0o6001), Ok(0));
    assert_eq!(fcntl(&mut machine, 3, 0), Ok(0o6002));
    assert_eq!(fcntl(&mut machine, 0, 50), Ok(50));
    assert_eq!(fcntl(&mut machine, 1030, 50), Ok(51));
    assert_eq!(machine.syscall("fcntl64", &[50, 1, 0]), Ok(0));
    assert_eq!(machine.syscall("fcntl64", &[51, 1, 0]), Ok(1));
    assert_eq!(fcntl(&mut machine, 2, 1), Ok(0));
    assert_eq!(fcntl(&mut machine, 1, 0), Ok(1));
    assert_eq!(fcntl(&mut machine, 12, BUFFER), Ok(0));
    assert_eq!(fcntl(&mut machine, 13, BUFFER), Ok(0));
    assert_eq!(fcntl(&mut machine, 99, 0), refused(Errno::EINVAL));
    assert_eq!(machine.memory().read_u16(BUFFER), Ok(2));
    for terminal in [0x5401, 0x5413, 0x540f] {
        assert_eq!(machine.syscall("ioctl", &[1, terminal, varargs]), refused(Errno::ENOTTY));
    }
    machine.files().write_file("f", b"12345").unwrap();
    machine.memory().write_u32(64, BUFFER).unwrap();
    assert_eq!(machine.syscall("ioctl", &[fd, 0x541b, varargs]), Ok(0));
    assert_eq!(machine.memory().read_u32(BUFFER), Ok(5));
    machine.memory().write_u32(BUFFER, 0).unwrap();
    assert_eq!(machine.syscall("ioctl", &[fd, 0x5421, varargs]), Ok(0));
    assert_eq!(machine.syscall("fcntl64", &[fd, 3, 0]), Ok(0o2002));
    assert_eq!(machine.syscall("ioctl", &[fd, 0, varargs]), refused(Errno::EINVAL));
    assert_eq!(machine.syscall("dup", &[fd]), Ok(4));
    assert_eq!(machine.syscall("dup3", &[fd, 9, 0o2_000_000]), Ok(9));
    assert_eq!(machine.wasi("fd_fdstat_get", &[fd, i64::from(BUFFER)]), 0);
    assert_eq!(machine.memory().read_u8(BUFFER), Ok(4));
}

#[test]
fn poll_returns_ready_descriptors_or_sleeps() {
    let mut machine = Machine::new();
    assert_eq!(machine.syscall("pipe", &[0]), refused(Errno::EFAULT));
    assert_eq!(machine.syscall("pipe", &[64]), Ok(0));
    let (reader, writer) = (machine.memory().read_u32(64).unwrap(), machine.memory().read_u32(68).unwrap());
    let entry = |machine: &mut Machine, at: Ptr, fd: u32, events: u16| {
        machine.memory().write_u32(at, fd).unwrap();
        machine.memory().write_u16(at + 4, events).unwrap();
    };
    entry(&mut machine, 128, reader, 1);
    assert_eq!(machine.syscall("poll", &[128, 1, 1]), Ok(0));
    machine.store.data().stop.interrupt(2);
    assert_eq!(machine.syscall("poll", &[128, 1, -1]), refused(Errno::EINTR));
    entry(&mut machine, 136, writer, 4);
    entry(&mut machine, 144, 99, 1);
    entry(&mut machine, 152, u32::MAX, 1);
    assert_eq!(machine.syscall("poll", &[128, 4, -1]), Ok(2));
    let found: Vec<u16> = (0..4).map(|at| machine.memory().read_u16(128 + 8 * at + 6).unwrap()).collect();
    assert_eq!(found, [0, 4, 0x20, 0]);
    machine.files().close(writer as i32).unwrap();
    assert_eq!(machine.syscall("poll", &[128, 1, 0]), Ok(1));
    assert_eq!(machine.memory().read_u16(134), Ok(0x10));
    assert_eq!(machine.syscall("poll", &[128, 5000, 0]), refused(Errno::EINVAL));
    machine.store.data().stop.stop(StopReason::Requested);
    let ended = machine.call("env", "__syscall_poll", &[0, 0, -1]).unwrap_err();
    assert_eq!(ended.downcast_ref(), Some(&Termination::Stopped));
}

#[test]
fn mapping_is_written_back_to_its_file_after_descriptor_reuse() {
    let mut machine = Machine::new();
    machine.files().write_file("mapped", b"0123456789").unwrap();
    machine.files().write_file("other", b"untouched!").unwrap();
    let fd = machine.open("mapped") as i32;
    let held = machine.files().duplicate(fd, 0, false).unwrap();
    assert_eq!(machine.call("env", "_mmap_js", &[10, 3, 1, i64::from(fd), 0, 64, 68]).unwrap(), Some(0));
    machine.files().close(fd).unwrap();
    assert_eq!(machine.open("other") as i32, fd);
    let back = |machine: &mut Machine, name: &str, text: &[u8]| {
        machine.memory().write(MAPPING, text).unwrap();
        machine.call("env", name, &[i64::from(MAPPING), 10, 3, 1, i64::from(fd), 0]).unwrap().unwrap() as i32
    };
    assert_eq!(back(&mut machine, "_msync_js", b"synced"), 0);
    assert_eq!(machine.files().read_file("mapped", 100).unwrap(), b"synced6789");
    machine.files().close(held).unwrap();
    assert_eq!(back(&mut machine, "_munmap_js", b"lost"), Errno::EBADF.negative());
    assert_eq!(machine.files().read_file("other", 100).unwrap(), b"untouched!");
}

#[test]
fn mapping_is_a_copy_that_is_written_back() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"0123456789").unwrap();
    let fd = machine.open("f");
    let map = |machine: &mut Machine, length: i64, flags: i64, fd: i64, offset: i64| {
        machine.call("env", "_mmap_js", &[length, 3, flags, fd, offset, 64, 68]).unwrap().unwrap() as i32
    };
    machine.memory().slice_mut(MAPPING, 100).unwrap().fill(0xff);
    assert_eq!(map(&mut machine, 20, 1, fd, 2), 0);
    assert_eq!((machine.memory().read_u32(64), machine.memory().read_u32(68)), (Ok(1), Ok(MAPPING)));
    assert_eq!(machine.memory().slice(MAPPING, 10), Ok(&b"23456789\0\0"[..]));
    assert_eq!(machine.memory().read_u8(MAPPING + 20), Ok(0xff));
    machine.memory().write(MAPPING, b"changed by the guest").unwrap();
    let back = |machine: &mut Machine, name: &str, protection: i64, flags: i64| {
        machine.call("env", name, &[i64::from(MAPPING), 20, protection, flags, fd, 2]).unwrap().unwrap() as i32
    };
    assert_eq!(back(&mut machine, "_munmap_js", 3, 2), 0);
    assert_eq!(back(&mut machine, "_munmap_js", 1, 1), 0);
    assert_eq!(machine.files().read_file("f", 100).unwrap(), b"0123456789");
    assert_eq!(back(&mut machine, "_msync_js", 3, 1), 0);
    assert_eq!(machine.files().read_file("f", 100).unwrap(), b"01changed ");
    assert_eq!(map(&mut machine, 0, 1, fd, 0), Errno::EINVAL.negative());
    assert_eq!(map(&mut machine, 1, 1, fd, -1), Errno::EINVAL.negative());
    assert_eq!(map(&mut machine, 1, 1, 0, 0), Errno::EACCES.negative());
    assert_eq!(map(&mut machine, -1, 1, fd, 0), Errno::ENOMEM.negative());
    assert_eq!(map(&mut machine, 200_000, 1, fd, 0), Errno::ENOMEM.negative());
    let path = machine.path("/dev/zero");
    let device = machine.syscall("openat", &[CWD, path, 2, 0]).unwrap();
    assert_eq!(map(&mut machine, 1, 1, device, 0), Errno::ENODEV.negative());
    let path = machine.path("f");
    let read_only = machine.syscall("openat", &[CWD, path, 0, 0]).unwrap();
    assert_eq!(map(&mut machine, 1, 1, read_only, 0), Errno::EACCES.negative());
    assert_eq!(map(&mut machine, 1, 2, read_only, 0), 0);
}
