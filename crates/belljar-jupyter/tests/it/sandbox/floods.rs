//! Code that takes all there is: each flood in a sandbox of its own, since that does not survive it.

use std::io::Read;

use belljar_jupyter::sandbox::{Ended, Limits};

use crate::trials::person::Outcome;
use crate::trials::scenarios::{equal, run};

const MEBIBYTE: u64 = 1 << 20;

pub(crate) fn a_fork_bomb_is_bounded() -> Outcome {
    let code = "import os, time
made = 0
while True:
    try:
        if os.fork() == 0: time.sleep(1000)
        made += 1
    except OSError as error:
        print(made, error.errno, flush=True)
        time.sleep(1000)";
    let mut running = run(code, Limits { processes: 40, ..Limits::default() })?;
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

pub(crate) fn threads_are_bounded() -> Outcome {
    let code = "import threading, time
try:
    for _ in range(1000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError: print('bounded', flush=True)";
    let mut running = run(code, Limits { processes: 40, ..Limits::default() })?;
    equal!(running.line()?, "bounded");
    Ok(())
}

pub(crate) fn one_process_cannot_take_all_memory() -> Outcome {
    let code = "try: bytearray(1 << 30)\nexcept MemoryError: print('bounded')";
    let mut running = run(code, Limits { memory_bytes: Some(256 * MEBIBYTE), ..Limits::default() })?;
    equal!(running.rest()?, "bounded\n");
    Ok(())
}

pub(crate) fn many_processes_cannot_take_all_memory() -> Outcome {
    let code = "import os, time
for _ in range(6): os.fork()
kept = b'x' * (50 << 20)
time.sleep(1000)";
    let mut running = run(code, Limits { memory_bytes: Some(256 * MEBIBYTE), ..Limits::default() })?;
    equal!(running.sandbox.wait()?, Ended::OverMemory);
    Ok(())
}

pub(crate) fn shared_pages_count() -> Outcome {
    let code = "import mmap, tempfile, time
kept = []
while True:
    file = tempfile.TemporaryFile(dir='/dev/shm')
    file.truncate(16 << 20)
    kept.append(mmap.mmap(file.fileno(), 16 << 20))
    kept[-1].write(bytes(16 << 20))
    if len(kept) > 60: time.sleep(1000)";
    let (memory_bytes, shared_bytes) = (Some(256 * MEBIBYTE), 1024 * MEBIBYTE);
    let mut running = run(code, Limits { memory_bytes, shared_bytes, ..Limits::default() })?;
    equal!(running.sandbox.wait()?, Ended::OverMemory);
    Ok(())
}

pub(crate) fn a_flood_of_output_waits_for_its_reader() -> Outcome {
    let mut running = run("import os\nwhile True: os.write(1, b'x' * 65536)", Limits::default())?;
    let mut taken = vec![0; 8 << 20];
    running.output.read_exact(&mut taken)?;
    running.sandbox.kill();
    // What is left is what a pipe holds.
    let left = running.output.read_to_end(&mut Vec::new())?;
    if left > 1 << 20 {
        return Err(format!("{left} bytes were kept").into());
    }
    Ok(())
}

pub(crate) fn processor_time_is_bounded() -> Outcome {
    let mut running = run("while True: pass", Limits { processor_seconds: Some(1), ..Limits::default() })?;
    let ended = running.sandbox.wait()?;
    if !matches!(ended, Ended::Signalled(libc::SIGXCPU | libc::SIGKILL)) {
        return Err(format!("{ended}").into());
    }
    Ok(())
}
