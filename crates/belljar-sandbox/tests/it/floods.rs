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
