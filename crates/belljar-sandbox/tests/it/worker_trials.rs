//! System calls of an attacker's choice in a sealed worker, as native code that has taken it over would make them.
//!
//! This program executes itself as the template of the worker. The worker makes the calls that the tests name, on a
//! thread that was started before it was sealed, and returns their results.

use std::error::Error;
use std::ffi::CStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use belljar_sandbox::worker::{
    NewWorker, SealLimits, Template, TemplateReport, WorkerProcess, WorkerTemplate, allowed_calls, seal,
};
use belljar_testing::{Capability, Failed, Trial};
use libc::c_long;
use parking_lot::Mutex;

/// The first argument of a template of this program.
const ARGUMENT: &str = "__worker";

/// The most private memory of the worker, in bytes.
const MEMORY_BYTES: u64 = 256 << 20;

/// An argument of a system call.
#[derive(Clone, Copy)]
enum Argument {
    Number(i64),
    Text(&'static CStr),
    /// A buffer of 4096 zeros.
    Buffer,
    /// The process ID of the worker's parent.
    Parent,
    /// A page of the worker that can be written to.
    Page,
    /// The number that the test sends with the name of the call.
    Given,
}

use Argument::{Buffer, Given, Number as N, Page, Parent, Text};

/// A name, the number of a system call, and its arguments.
type Attack = (&'static str, c_long, &'static [Argument]);

/// Arguments of `mmap`: private memory, and shared memory.
const PRIVATE: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;
const SHARED: i64 = (libc::MAP_SHARED | libc::MAP_ANONYMOUS) as i64;
const WRITABLE: i64 = (libc::PROT_READ | libc::PROT_WRITE) as i64;
const EXECUTABLE: i64 = (libc::PROT_READ | libc::PROT_EXEC) as i64;
const ALL_ACCESS: i64 = WRITABLE | EXECUTABLE;

/// The bytes of a reserve that are made writable: more than [`MEMORY_BYTES`].
const UNCOUNTED: i64 = 300 << 20;

/// Calls that must fail with `EPERM`.
#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    // Files.
    ("opens_a_file", libc::SYS_openat, &[N(-100), Text(c"/etc/passwd"), N(0)]),
    ("opens_the_root", libc::SYS_openat, &[N(-100), Text(c"/"), N(libc::O_PATH as i64)]),
    ("opens_itself", libc::SYS_openat, &[N(-100), Text(c"/proc/self/mem"), N(2)]),
    ("opens_with_openat2", libc::SYS_openat2, &[N(-100), Text(c"/etc/passwd"), Buffer, N(24)]),
    ("creates_a_file", libc::SYS_openat, &[N(-100), Text(c"/tmp/x"), N(0o101), N(0o600)]),
    ("reads_attributes", libc::SYS_newfstatat, &[N(-100), Text(c"/etc"), Buffer, N(0)]),
    ("lists_a_directory", libc::SYS_getdents64, &[N(0), Buffer, N(4096)]),
    ("deletes_a_file", libc::SYS_unlinkat, &[N(-100), Text(c"/tmp/x"), N(0)]),
    ("renames_a_file", libc::SYS_renameat2, &[N(-100), Text(c"/a"), N(-100), Text(c"/b"), N(0)]),
    ("makes_a_device", libc::SYS_mknodat, &[N(-100), Text(c"/d"), N(0o20666), N(0x101)]),
    ("changes_directory", libc::SYS_chdir, &[Text(c"/")]),
    ("changes_root", libc::SYS_chroot, &[Text(c"/")]),
    ("mounts", libc::SYS_mount, &[Text(c"none"), Text(c"/"), Text(c"tmpfs"), N(0), N(0)]),
    ("opens_a_tree", libc::SYS_open_tree, &[N(-100), Text(c"/"), N(1)]),
    ("opens_by_handle", libc::SYS_open_by_handle_at, &[N(-100), Buffer, N(0)]),
    ("watches_files", libc::SYS_inotify_init1, &[N(0)]),
    // Network and sockets.
    ("creates_an_internet_socket", libc::SYS_socket, &[N(libc::AF_INET as i64), N(1), N(0)]),
    ("creates_a_unix_socket", libc::SYS_socket, &[N(libc::AF_UNIX as i64), N(1), N(0)]),
    ("creates_a_netlink_socket", libc::SYS_socket, &[N(libc::AF_NETLINK as i64), N(3), N(0)]),
    ("creates_a_vsock", libc::SYS_socket, &[N(libc::AF_VSOCK as i64), N(1), N(0)]),
    ("creates_a_socket_pair", libc::SYS_socketpair, &[N(1), N(1), N(0), Buffer]),
    ("connects_its_channel", libc::SYS_connect, &[N(3), Buffer, N(16)]),
    ("binds_its_channel", libc::SYS_bind, &[N(3), Buffer, N(16)]),
    ("accepts_on_its_channel", libc::SYS_accept4, &[N(3), N(0), N(0), N(0)]),
    ("sends_descriptors", libc::SYS_sendmsg, &[N(3), Buffer, N(0)]),
    ("receives_descriptors", libc::SYS_recvmsg, &[N(3), Buffer, N(0)]),
    ("sends_to_an_address", libc::SYS_sendto, &[N(3), Buffer, N(1), N(0), Buffer, N(16)]),
    ("enlarges_buffers", libc::SYS_setsockopt, &[N(3), N(1), N(7), Buffer, N(4)]),
    ("shuts_its_channel_down", libc::SYS_shutdown, &[N(3), N(2)]),
    // Processes.
    ("clones", libc::SYS_clone, &[N(libc::SIGCHLD as i64), N(0), N(0), N(0), N(0)]),
    ("clones_with_clone3", libc::SYS_clone3, &[Buffer, N(88)]),
    ("executes", libc::SYS_execve, &[Text(c"/bin/sh"), Buffer, Buffer]),
    ("executes_a_descriptor", libc::SYS_execveat, &[N(3), Text(c""), Buffer, Buffer, N(0x1000)]),
    ("traces_its_parent", libc::SYS_ptrace, &[N(libc::PTRACE_SEIZE as i64), Parent, N(0), N(0)]),
    ("is_traced", libc::SYS_ptrace, &[N(libc::PTRACE_TRACEME as i64), N(0), N(0), N(0)]),
    ("reads_memory_of_its_parent", libc::SYS_process_vm_readv, &[Parent, Buffer, N(1), Buffer, N(1), N(0)]),
    ("writes_memory_of_its_parent", libc::SYS_process_vm_writev, &[Parent, Buffer, N(1), Buffer, N(1), N(0)]),
    ("takes_a_descriptor_of_its_parent", libc::SYS_pidfd_getfd, &[N(3), N(0), N(0)]),
    ("opens_its_parent", libc::SYS_pidfd_open, &[Parent, N(0)]),
    ("kills_its_parent", libc::SYS_kill, &[Parent, N(libc::SIGKILL as i64)]),
    ("kills_everything", libc::SYS_kill, &[N(-1), N(libc::SIGKILL as i64)]),
    ("kills_a_thread", libc::SYS_tgkill, &[Parent, Parent, N(libc::SIGKILL as i64)]),
    ("signals_by_descriptor", libc::SYS_pidfd_send_signal, &[N(3), N(9), N(0), N(0)]),
    ("compares_processes", libc::SYS_kcmp, &[Parent, Parent, N(0), N(0), N(0)]),
    ("waits_for_a_process", libc::SYS_wait4, &[N(-1), N(0), N(1), N(0)]),
    ("changes_priorities", libc::SYS_setpriority, &[N(0), N(0), N(-10)]),
    ("changes_limits", libc::SYS_prlimit64, &[N(0), N(libc::RLIMIT_NOFILE as i64), Buffer, N(0)]),
    // Memory.
    ("maps_memory_to_execute", libc::SYS_mmap, &[N(0), N(4096), N(EXECUTABLE), N(PRIVATE), N(-1), N(0)]),
    ("maps_memory_to_write_and_execute", libc::SYS_mmap, &[N(0), N(4096), N(ALL_ACCESS), N(PRIVATE), N(-1), N(0)]),
    ("maps_a_descriptor_to_execute", libc::SYS_mmap, &[N(0), N(4096), N(EXECUTABLE), N(2), N(0), N(0)]),
    ("hides_the_protection_in_high_bits", libc::SYS_mmap, &[N(0), N(4096), N(EXECUTABLE | 1 << 40), N(PRIVATE), N(-1), N(0)]),
    ("makes_memory_executable", libc::SYS_mprotect, &[Page, N(4096), N(EXECUTABLE)]),
    ("makes_memory_executable_by_key", libc::SYS_pkey_mprotect, &[Page, N(4096), N(EXECUTABLE), N(-1)]),
    ("maps_uncounted_memory", libc::SYS_mmap, &[N(0), N(4096), N(WRITABLE), N(SHARED), N(-1), N(0)]),
    ("maps_memory_that_grows_like_a_stack", libc::SYS_mmap, &[N(0), N(1 << 30), N(WRITABLE), N(PRIVATE | libc::MAP_GROWSDOWN as i64), N(-1), N(0)]),
    ("creates_memory_files", libc::SYS_memfd_create, &[Text(c"x"), N(0)]),
    ("creates_secret_memory", libc::SYS_memfd_secret, &[N(0)]),
    ("creates_shared_memory", libc::SYS_shmget, &[N(0), N(4096), N(0o1600)]),
    ("locks_memory", libc::SYS_mlockall, &[N(1)]),
    ("handles_faults_of_memory", libc::SYS_userfaultfd, &[N(1)]),
    ("executes_readable_memory", libc::SYS_personality, &[N(0x0040_0000)]),
    // The kernel.
    ("installs_a_filter", libc::SYS_seccomp, &[N(1), N(0), Buffer]),
    ("sets_attributes", libc::SYS_prctl, &[N(libc::PR_SET_DUMPABLE as i64), N(1), N(0), N(0), N(0)]),
    ("enters_namespaces", libc::SYS_setns, &[N(3), N(0)]),
    ("creates_namespaces", libc::SYS_unshare, &[N(libc::CLONE_NEWUSER as i64)]),
    ("gains_capabilities", libc::SYS_capset, &[Buffer, Buffer]),
    ("becomes_root", libc::SYS_setresuid, &[N(0), N(0), N(0)]),
    ("loads_a_program_into_the_kernel", libc::SYS_bpf, &[N(5), Buffer, N(64)]),
    ("measures_the_kernel", libc::SYS_perf_event_open, &[Buffer, N(0), N(-1), N(-1), N(0)]),
    ("queues_calls", libc::SYS_io_uring_setup, &[N(8), Buffer]),
    ("reads_keys", libc::SYS_keyctl, &[N(0), N(-3), N(0)]),
    ("reads_the_log", libc::SYS_syslog, &[N(3), Buffer, N(4096)]),
    ("loads_a_module", libc::SYS_finit_module, &[N(3), Text(c""), N(0)]),
    ("restarts_the_machine", libc::SYS_reboot, &[N(0xfee1_dead), N(672_274_793), N(0x0123_4567), N(0)]),
    // Descriptors.
    ("duplicates_a_descriptor", libc::SYS_dup, &[N(3)]),
    ("duplicates_by_fcntl", libc::SYS_fcntl, &[N(3), N(libc::F_DUPFD as i64), N(0)]),
    ("creates_a_pipe", libc::SYS_pipe2, &[Buffer, N(0)]),
    ("creates_an_event_descriptor", libc::SYS_eventfd2, &[N(0), N(0)]),
    ("creates_a_poll_descriptor", libc::SYS_epoll_create1, &[N(0)]),
    ("creates_a_timer", libc::SYS_timerfd_create, &[N(1), N(0)]),
    ("types_into_a_terminal", libc::SYS_ioctl, &[N(0), N(libc::TIOCSTI as i64), Buffer]),
    ("asks_a_driver", libc::SYS_ioctl, &[N(3), N(libc::FIONREAD as i64), Buffer]),
    ("calls_a_number_that_no_kernel_has", 9999, &[]),
];

/// Calls that a virtual machine needs.
#[rustfmt::skip]
const PERMITTED: &[Attack] = &[
    ("maps_memory", libc::SYS_mmap, &[N(0), N(4096), N(WRITABLE), N(PRIVATE), N(-1), N(0)]),
    ("maps_more_than_its_limit", libc::SYS_mmap, &[N(0), N(1 << 30), N(WRITABLE), N(PRIVATE), N(-1), N(0)]),
    ("reserves_memory", libc::SYS_mmap, &[N(0), N(8 << 30), N(0), N(PRIVATE | libc::MAP_NORESERVE as i64), N(-1), N(0)]),
    ("reserves_given_bytes", libc::SYS_mmap, &[N(0), Given, N(0), N(PRIVATE | libc::MAP_NORESERVE as i64), N(-1), N(0)]),
    ("makes_a_reserve_writable", libc::SYS_mprotect, &[Given, N(UNCOUNTED), N(WRITABLE)]),
    ("writes_to_a_reserve", libc::SYS_madvise, &[Given, N(UNCOUNTED), N(libc::MADV_POPULATE_WRITE as i64)]),
    ("protects_memory", libc::SYS_mprotect, &[Page, N(4096), N(WRITABLE)]),
    ("reads_random_numbers", libc::SYS_getrandom, &[Buffer, N(16), N(0)]),
    ("yields", libc::SYS_sched_yield, &[]),
];

/// A worker that makes system calls.
struct Attacked {
    channel: Mutex<UnixStream>,
    report: TemplateReport,
    worker: WorkerProcess,
    _template: WorkerTemplate,
}

/// Becomes a template or a worker, if this process was started as one.
pub(crate) fn run_if_child() {
    let Some(template) = Template::if_child(ARGUMENT) else { return };
    if template.task::<()>().is_err() {
        template.fail("there is no task");
    }
    let NewWorker { mut descriptors, .. } = template.serve();
    let Some(channel) = descriptors.pop() else { std::process::exit(1) };
    let parent = i64::from(std::os::unix::process::parent_id());
    let (start, started) = std::sync::mpsc::channel();
    // The filters must hold for threads that exist already.
    let attacker = std::thread::spawn(move || {
        let sealed = started.recv().unwrap_or(false);
        if sealed { make_calls(channel.into(), parent) } else { Ok(()) }
    });
    let sealed = seal(SealLimits { memory_bytes: MEMORY_BYTES });
    let _ = start.send(sealed.is_ok());
    let _ = attacker.join();
    std::process::exit(0);
}

/// Makes the calls whose positions in [`ATTACKS`] or [`PERMITTED`] arrive, each with a number. Sends each result, or
/// the negative error number.
fn make_calls(mut channel: UnixStream, parent: i64) -> std::io::Result<()> {
    let (mut position, mut given) = ([0; 4], [0; 8]);
    loop {
        channel.read_exact(&mut position)?;
        channel.read_exact(&mut given)?;
        let position = u32::from_le_bytes(position) as usize;
        let Some((_, number, arguments)) = ATTACKS.iter().chain(PERMITTED).nth(position) else { return Ok(()) };
        let value = |at: usize| match arguments.get(at).copied().unwrap_or(N(0)) {
            N(number) => number,
            Text(text) => text.as_ptr().expose_provenance() as i64,
            Buffer => SCRATCH.as_ptr().expose_provenance() as i64,
            Page => (SCRATCH.as_ptr().expose_provenance() as i64 + 4095) & !4095,
            Parent => parent,
            Given => i64::from_le_bytes(given),
        };
        // SAFETY: a call that is refused accesses no memory. The permitted ones get addresses of `SCRATCH`, whose
        // values no other code reads, and of memory that one of them has mapped.
        let result = unsafe { libc::syscall(*number, value(0), value(1), value(2), value(3), value(4), value(5)) };
        let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let result = if result < 0 { -i64::from(error) } else { result };
        channel.write_all(&result.to_le_bytes())?;
    }
}

/// Memory of the worker that calls may use.
static SCRATCH: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Returns the worker of all tests, or the reason why it could not be started.
fn attacked() -> Result<&'static Attacked, Failed> {
    static ATTACKED: OnceLock<Result<Attacked, String>> = OnceLock::new();
    let attacked = ATTACKED.get_or_init(|| Attacked::start().map_err(|error| error.to_string()));
    Ok(attacked.as_ref()?)
}

impl Attacked {
    fn start() -> Result<Self, Box<dyn Error>> {
        let command = [std::env::current_exe()?.into_os_string(), ARGUMENT.into()];
        let template = WorkerTemplate::start(&command, &())?;
        let (channel, its_channel) = UnixStream::pair()?;
        let worker = template.fork(&[its_channel.as_fd()])?;
        drop(its_channel);
        channel.set_read_timeout(Some(Duration::from_secs(60)))?;
        let report = template.report().clone();
        Ok(Self { channel: Mutex::new(channel), report, worker, _template: template })
    }

    /// Has the worker make a call with a number, and returns its result.
    fn call(&self, name: &str, given: i64) -> Result<i64, Failed> {
        let position =
            ATTACKS.iter().chain(PERMITTED).position(|(called, ..)| *called == name).ok_or("no such call")?;
        let mut channel = self.channel.lock();
        channel.write_all(&(position as u32).to_le_bytes())?;
        channel.write_all(&given.to_le_bytes())?;
        let mut result = [0; 8];
        channel.read_exact(&mut result)?;
        Ok(i64::from_le_bytes(result))
    }
}

/// Has the worker of all tests make a call, and returns its result.
fn call(name: &str) -> Result<i64, Failed> {
    attacked()?.call(name, 0)
}

pub(crate) fn trials() -> Vec<Trial> {
    let needs = [Capability::X86_64];
    let attacks = ATTACKS.iter().map(|(name, ..)| {
        let test = move || {
            assert_eq!(call(name)?, -i64::from(libc::EPERM), "{name}");
            Ok(())
        };
        belljar_testing::trial_result(format!("worker::{name}"), &needs, test)
    });
    let scenarios: [Scenario; 4] = [
        ("makes_the_calls_that_it_needs", makes_the_calls_that_it_needs),
        ("gets_no_more_memory_than_its_limit", gets_no_more_memory_than_its_limit),
        ("hides_no_memory_from_its_host", hides_no_memory_from_its_host),
        ("has_all_layers", has_all_layers),
    ];
    let scenarios =
        scenarios.map(|(name, test)| belljar_testing::trial_result(format!("worker::{name}"), &needs, test));
    attacks.chain(scenarios).collect()
}

/// A scenario: its name and its function.
type Scenario = (&'static str, fn() -> Result<(), Failed>);

fn makes_the_calls_that_it_needs() -> Result<(), Failed> {
    assert!(call("maps_memory")? > 0);
    assert_eq!(call("yields")?, 0);
    assert_eq!(call("protects_memory")?, 0);
    assert!(call("reads_random_numbers")? > 0);
    assert!(allowed_calls().len() <= 45);
    Ok(())
}

fn gets_no_more_memory_than_its_limit() -> Result<(), Failed> {
    assert_eq!(call("maps_more_than_its_limit")?, -i64::from(libc::ENOMEM));
    assert!(call("reserves_memory")? > 0);
    Ok(())
}

fn hides_no_memory_from_its_host() -> Result<(), Failed> {
    // Its address space will be full, so it is not the worker of the other tests.
    let attacked = Attacked::start().map_err(|error| error.to_string())?;
    let reserve = attacked.call("reserves_given_bytes", 64 << 30)?;
    assert!(reserve > 0);
    let before = attacked.worker.memory_bytes().ok_or("the memory cannot be read")?;
    assert!(before < MEMORY_BYTES, "{before}");
    // While there is room in the address space, the kernel counts memory that becomes writable. If there is none, it
    // takes the reserve for memory that was counted before.
    assert_eq!(attacked.call("makes_a_reserve_writable", reserve)?, -i64::from(libc::ENOMEM));
    for bytes in (12..36).rev().map(|bits| 1 << bits) {
        while attacked.call("reserves_given_bytes", bytes)? > 0 {}
    }
    if attacked.call("makes_a_reserve_writable", reserve)? == -i64::from(libc::ENOMEM) {
        return Ok(());
    }
    assert_eq!(attacked.call("writes_to_a_reserve", reserve)?, 0);
    let after = attacked.worker.memory_bytes().ok_or("the memory cannot be read")?;
    assert!(after >= UNCOUNTED as u64, "{after}");
    Ok(())
}

fn has_all_layers() -> Result<(), Failed> {
    if Capability::NativeSandbox.missing().is_none() {
        assert_eq!(attacked()?.report, TemplateReport::default());
    }
    Ok(())
}
