//! Code that exhausts a resource, each in a sandbox of its own, since the sandbox may not survive it.

use std::io::Read;

use belljar_sandbox::{ExitStatus, ResourceLimits};

use crate::trials::host_user::TestResult;
use crate::trials::scenarios::{equal, run};

const MEBIBYTE: u64 = 1 << 20;

pub(crate) fn fork_bomb_is_bounded() -> TestResult {
    let code = "import os, time
made = 0
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
        made += 1
    except OSError as error:
        print(made, error.errno, flush=True)
        time.sleep(1000)";
    let mut running = run(code, ResourceLimits { processes: 40, ..ResourceLimits::default() })?;
    let line = running.line()?;
    let (made, errno) = line.split_once(' ').ok_or_else(|| line.clone())?;
    equal!(errno, libc::EAGAIN.to_string());
    if !(1..=40).contains(&made.parse::<u32>()?) {
        return Err(format!("{made} processes").into());
    }
    running.sandbox.kill();
    equal!(running.rest()?, "");
    Ok(())
}

pub(crate) fn number_of_threads_is_bounded() -> TestResult {
    let code = "import threading, time
try:
    for _ in range(1000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError: print('bounded', flush=True)";
    let mut running = run(code, ResourceLimits { processes: 40, ..ResourceLimits::default() })?;
    equal!(running.line()?, "bounded");
    Ok(())
}

pub(crate) fn one_process_cannot_use_all_memory() -> TestResult {
    let code = "try: bytearray(1 << 30)\nexcept MemoryError: print('bounded')";
    let mut running = run(code, ResourceLimits { memory_bytes: Some(256 * MEBIBYTE), ..ResourceLimits::default() })?;
    equal!(running.rest()?, "bounded\n");
    Ok(())
}

pub(crate) fn many_processes_cannot_use_all_memory() -> TestResult {
    let code = "import os, time
for _ in range(6): os.fork()
kept = b'x' * (50 << 20)
time.sleep(1000)";
    let mut running = run(code, ResourceLimits { memory_bytes: Some(256 * MEBIBYTE), ..ResourceLimits::default() })?;
    equal!(running.sandbox.wait()?, ExitStatus::MemoryLimitExceeded);
    Ok(())
}

pub(crate) fn shared_pages_count_towards_the_memory_limit() -> TestResult {
    let code = "import mmap, tempfile, time
kept = []
while True:
    file = tempfile.TemporaryFile(dir='/dev/shm')
    file.truncate(16 << 20)
    kept.append(mmap.mmap(file.fileno(), 16 << 20))
    kept[-1].write(bytes(16 << 20))
    if len(kept) > 60: time.sleep(1000)";
    let (memory_bytes, shared_bytes) = (Some(256 * MEBIBYTE), 1024 * MEBIBYTE);
    let mut running = run(code, ResourceLimits { memory_bytes, shared_bytes, ..ResourceLimits::default() })?;
    equal!(running.sandbox.wait()?, ExitStatus::MemoryLimitExceeded);
    Ok(())
}

/// Runs code that fills buffers and then ends, in a sandbox with a limit of `memory_mebibytes`. The code itself is
/// bounded: without the limit it would take about a hundred megabytes.
fn exceeds_memory(code: &str, memory_mebibytes: u64) -> TestResult {
    let code = format!("{FILL}\n{code}\nprint('filled', flush=True)\ntime.sleep(100)");
    let memory_bytes = Some(memory_mebibytes * MEBIBYTE);
    let mut running = run(&code, ResourceLimits { memory_bytes, ..ResourceLimits::default() })?;
    let text = running.rest()?;
    match running.sandbox.wait()? {
        ExitStatus::MemoryLimitExceeded => Ok(()),
        ended => Err(format!("{ended}: {text}").into()),
    }
}

const FILL: &str = "import os, socket, sys, time
kept = []
def fill(sender):
    sender.setblocking(False)
    try:
        while True: sender.send(bytes(16384))
    except BlockingIOError: pass";

pub(crate) fn unread_data_of_unix_sockets_counts_towards_the_memory_limit() -> TestResult {
    let code = "for _ in range(240):
    kept.append(socket.socketpair())
    for end in kept[-1]: fill(end)";
    exceeds_memory(code, 64)
}

pub(crate) fn unread_data_of_closed_sockets_counts_towards_the_memory_limit() -> TestResult {
    let code = "for _ in range(480):
    sender, receiver = socket.socketpair()
    fill(sender)
    sender.close()
    kept.append(receiver)";
    exceeds_memory(code, 64)?;
    // Connections that are not accepted.
    let code = "for name in range(4):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f'/tmp/{name}')
    listener.listen(128)
    kept.append(listener)
    for _ in range(128):
        sender = socket.socket(socket.AF_UNIX)
        sender.connect(listener.getsockname())
        fill(sender)
        sender.close()";
    exceeds_memory(code, 64)
}

pub(crate) fn sockets_on_their_way_count_towards_the_memory_limit() -> TestResult {
    let code = "carrier, end = socket.socketpair()
for _ in range(80):
    ends = [end for _ in range(3) for end in socket.socketpair()]
    for one in ends: fill(one)
    socket.send_fds(carrier, [b'x'], [one.fileno() for one in ends])
    for one in ends: one.close()";
    exceeds_memory(code, 64)
}

pub(crate) fn unread_data_of_tcp_is_limited() -> TestResult {
    // The limit of memory is not reached.
    let code = "listener = socket.create_server(('127.0.0.1', 0), backlog=128)
for _ in range(150):
    client = socket.create_connection(listener.getsockname())
    kept.extend([client, listener.accept()[0]])
    for end in kept[-2:]: fill(end)";
    exceeds_memory(code, 1024)
}

pub(crate) fn unread_data_of_udp_is_limited() -> TestResult {
    // As for TCP, the limit of memory is not reached: the host's limit for UDP is shared as well. Datagrams that do not
    // fit into the receiver's buffer are dropped.
    let code = "for _ in range(400):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(('127.0.0.1', 0))
    kept.append(receiver)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(20): sender.sendto(bytes(16384), receiver.getsockname())
    sender.close()";
    exceeds_memory(code, 1024)
}

pub(crate) fn pipes_count_towards_the_memory_limit() -> TestResult {
    let code = "for _ in range(3): os.fork()
for _ in range(240):
    kept.append(os.pipe())
    os.write(kept[-1][1], bytes(8192))";
    exceeds_memory(code, 80)
}

pub(crate) fn page_tables_count_towards_the_memory_limit() -> TestResult {
    // Each page is the page of zeros, and each needs a table of its own.
    let code = "import mmap
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
memory = mmap.mmap(-1, 30_000 << 21, flags=flags, prot=mmap.PROT_READ)
for at in range(0, 30_000 << 21, 1 << 21): memory[at]";
    exceeds_memory(code, 64)
}

pub(crate) fn many_sockets_without_data_are_no_excess() -> TestResult {
    let code = "import socket
kept = [socket.socketpair() for _ in range(200)]
import time; time.sleep(1)
print('kept')";
    let memory_bytes = Some(128 * MEBIBYTE);
    let mut running = run(code, ResourceLimits { memory_bytes, ..ResourceLimits::default() })?;
    equal!(running.rest()?, "kept\n");
    Ok(())
}

pub(crate) fn flood_of_output_waits_for_its_reader() -> TestResult {
    let mut running = run("import os\nwhile True: os.write(1, b'x' * 65536)", ResourceLimits::default())?;
    let mut taken = vec![0; 8 << 20];
    running.output.read_exact(&mut taken)?;
    running.sandbox.kill();
    // Only the content of the pipe is left.
    let left = running.output.read_to_end(&mut Vec::new())?;
    if left > 1 << 20 {
        return Err(format!("{left} bytes were left").into());
    }
    Ok(())
}

pub(crate) fn cpu_time_is_bounded() -> TestResult {
    let mut running =
        run("while True: pass", ResourceLimits { processor_seconds: Some(1), ..ResourceLimits::default() })?;
    let ended = running.sandbox.wait()?;
    if !matches!(ended, ExitStatus::Signalled(libc::SIGXCPU | libc::SIGKILL)) {
        return Err(format!("{ended}").into());
    }
    Ok(())
}
