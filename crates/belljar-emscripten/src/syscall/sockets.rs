//! Sockets and name resolution, which always fail: the guest has no network.

use wasmtime::{ExternRef, Linker, Result, Rooted};

use crate::Errno;
use crate::host::Host;

/// `EAI_FAIL`: a permanent failure.
const EAI_FAIL: i32 = -4;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    let no_socket = |errno: Errno| move |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32| errno.negative();
    linker.func_wrap("env", "__syscall_socket", no_socket(Errno::EAFNOSUPPORT))?;
    for name in [
        "__syscall_accept4",
        "__syscall_bind",
        "__syscall_connect",
        "__syscall_getpeername",
        "__syscall_getsockname",
        "__syscall_getsockopt",
        "__syscall_listen",
        "__syscall_recvfrom",
        "__syscall_recvmsg",
        "__syscall_sendmsg",
        "__syscall_sendto",
        "__syscall_shutdown",
    ] {
        linker.func_wrap("env", name, no_socket(Errno::ENOTSOCK))?;
    }

    linker.func_wrap("env", "getaddrinfo", |_: i32, _: i32, _: i32, _: i32| EAI_FAIL)?;
    linker.func_wrap("env", "getnameinfo", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32, _: i32| EAI_FAIL)?;
    // A null pointer: unknown protocol.
    linker.func_wrap("env", "getprotobyname", |_: i32| 0)?;
    // The address 0.0.0.0: this function cannot report an error.
    linker.func_wrap("env", "_emscripten_lookup_name", |_: i32| 0)?;

    // Hooks before the calls above. A null promise and a zero request the plain call.
    for name in ["_maybe_connect_async", "_maybe_recvfrom_async", "_maybe_sendto_async", "_maybe_poll_async"] {
        linker.func_wrap("env", name, |_: i32, _: i32, _: i32| None::<Rooted<ExternRef>>)?;
    }
    linker.func_wrap("env", "_try_fcntl64", |_: i32, _: i32, _: i32, _: i32| 0)?;
    linker.func_wrap("env", "_try_shutdown", |_: i32, _: i32, _: i32| 0)?;
    Ok(())
}
