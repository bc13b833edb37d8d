//! `poll`: waiting for descriptors, which amounts to sleeping, unless some are sockets.
//!
//! There is one thread: while it waits, its pipes do not change, but its sockets do. Without sockets, a descriptor is
//! ready at once, or the call sleeps until the timeout, a signal or the stop of the program.

use std::time::{Duration, Instant};

use wasmtime::Linker;

use super::result::{SyscallResult, env};
use crate::Errno;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host};
use crate::stop::SleepResult;
use crate::watchdog::Pause;

const POLLIN: u16 = 0x01;
const POLLOUT: u16 = 0x04;
const POLLERR: u16 = 0x08;
const POLLHUP: u16 = 0x10;
const POLLNVAL: u16 = 0x20;
const POLLRDNORM: u16 = 0x40;
const POLLWRNORM: u16 = 0x100;

pub(super) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "__syscall_poll", |mut call: Call<'_>, fds: Ptr, count: u32, timeout: i32| {
        env(&mut call, |memory, host| poll(memory, host, fds, count, timeout))
    })?;
    // Imported by newer releases of Emscripten. Without `epoll`, `select.epoll` fails, and `selectors` falls back to
    // poll.
    linker.func_wrap("env", "__syscall_poll_nonblocking", |mut call: Call<'_>, fds: Ptr, count: u32| {
        env(&mut call, |memory, host| poll(memory, host, fds, count, 0))
    })?;
    linker.func_wrap("env", "__syscall_epoll_create1", |_: i32| Errno::ENOSYS.negative())?;
    linker.func_wrap("env", "__syscall_epoll_ctl", |_: i32, _: i32, _: i32, _: i32| Errno::ENOSYS.negative())?;
    linker.func_wrap("env", "__syscall_epoll_pwait", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32| {
        Errno::ENOSYS.negative()
    })?;
    Ok(())
}

/// Implements `poll`. `timeout` is in milliseconds; a negative one waits for a signal only.
fn poll(memory: &mut GuestMemory<'_>, host: &mut Host, fds: Ptr, count: u32, timeout: i32) -> SyscallResult {
    // As on Linux: more entries than descriptors are useless.
    if count > host.files.quota().open_files {
        return Err(Errno::EINVAL.into());
    }
    let bytes = count.checked_mul(8).ok_or(Errno::EINVAL)?;
    memory.slice(fds, bytes)?;
    let time = u64::try_from(timeout).map_or(Duration::MAX, Duration::from_millis);
    let start = Instant::now();
    loop {
        let seen = host.stop.changes();
        let (ready, sockets) = look(memory, host, fds, count)?;
        let left = time.saturating_sub(start.elapsed());
        if ready > 0 || timeout == 0 || (sockets && left.is_zero()) {
            return Ok(ready);
        }
        let result = if sockets {
            let _pause = Pause::start(&host.stop);
            host.announce_wait();
            host.stop.sleep_until_change(seen, left)?
        } else {
            host.sleep(left)?
        };
        match result {
            SleepResult::Signal => return Err(Errno::EINTR.into()),
            SleepResult::Elapsed if !sockets => return Ok(0),
            SleepResult::Elapsed | SleepResult::Changed => {}
        }
    }
}

/// Writes the events of each entry. Returns the number of entries that have events, and whether any is a socket.
fn look(memory: &mut GuestMemory<'_>, host: &Host, fds: Ptr, count: u32) -> Result<(i32, bool), Errno> {
    let (mut ready, mut sockets) = (0, false);
    for index in 0..count {
        let entry = field(fds, index * 8)?;
        let fd = memory.read_i32(entry)?;
        let asked = memory.read_u16(field(entry, 4)?)?;
        let found = events(host, fd) & (asked | POLLERR | POLLHUP | POLLNVAL);
        memory.write_u16(field(entry, 6)?, found)?;
        ready += i32::from(found != 0);
        sockets |= host.files.socket(fd).is_ok();
    }
    Ok((ready, sockets))
}

fn events(host: &Host, fd: i32) -> u16 {
    if fd < 0 {
        return 0;
    }
    let Ok(readiness) = host.files.readiness(fd) else { return POLLNVAL };
    let states = [
        (readiness.readable, POLLIN | POLLRDNORM),
        (readiness.writable, POLLOUT | POLLWRNORM),
        (readiness.hung_up, POLLHUP),
        (readiness.broken, POLLERR),
    ];
    states.into_iter().filter(|(is, _)| *is).fold(0, |events, (_, event)| events | event)
}
