//! The Linux sandbox that native code runs in: namespaces, a root in memory, Landlock, seccomp, control groups. On
//! other systems the crate is empty.
//!
//! # Use
//!
//! A **program** is executed in a sandbox of its own:
//!
//! ```no_run
//! use belljar_sandbox::{self as sandbox, Policy, Spec, Streams};
//!
//! sandbox::run_fork_server_if_child(); // the first call in `main`
//! # || -> Result<(), sandbox::Error> {
//! let spec = Spec { user: Some(sandbox::SESSION_USERS.start), ..Spec::new(["/usr/bin/python3", "-c", "print(1)"]) };
//! let mut sandbox = sandbox::spawn(&spec, Policy::Full, Streams::default())?;
//! println!("{}", sandbox.wait()?);
//! # Ok(())
//! # };
//! ```
//!
//! A **process that was forked elsewhere**, for example from an interpreter with its imports done (a zygote), enters an
//! [idle](Spec::idle) sandbox:
//!
//! ```text
//! host                                 zygote (trusted, clean environment)
//!  │ spawn(Spec::idle()) ─▶ launcher ─▶ first process: root, namespaces, no program
//!  │ Sandbox::entry() ─▶ Entry { plan, descriptors }, EntryHandle
//!  │ ── plan and descriptors, over a socket (SCM_RIGHTS) ──▶ fork ─▶ A
//!  │                                                                 │ the steps of the plan:
//!  │                                                                 │ user, setns(all namespaces),
//!  │                                                                 │ fork ─▶ B: limits, no_new_privs, Landlock,
//!  │                                                                 │         capabilities, descriptors, seccomp
//!  │ ◀── EntryHandle::wait() ── pidfd of B ──────────────────────────┘ A exits
//!  │                                       the zygote, a subreaper, becomes the parent of B and reaps it
//! ```
//!
//! The plan is data: [`Entry`] documents it as an interface. The code that performs the steps belongs to the zygote,
//! and needs no knowledge of system calls, since numbers and bytes are in the plan. After the last step only the memory
//! of the zygote is left in *B*: environment, descriptors, working directory and standard streams are the sandbox's.
//! The zygote must
//!
//! - run an executable that the user of the code cannot change, since *B* reaches it through `/proc/self/exe`, and
//!   start with an environment that may be read in `/proc/self/environ`;
//! - be a subreaper (`prctl(PR_SET_CHILD_SUBREAPER)`), and reap processes that it did not fork itself;
//! - have one thread when it forks, and hold nothing in memory that the code must not read;
//! - detach its own sockets in the fork before the first step, which closes all descriptors by number.
//!
//! An idle sandbox exists until it is dropped. [`Sandbox::kill_all`] kills the processes in it; after that another
//! process may enter, and finds the files in the folders in memory unchanged.
//!
//! # Processes
//!
//! ```text
//! host ──exec, once──▶ fork server ──fork──▶ launcher ──fork──▶ first process ──fork──▶ program
//! ```
//!
//! Each of them ends when its predecessor does:
//!
//! - the fork server exits when its socket to the host closes;
//! - a launcher exits when the [`Sandbox`] is dropped or the host dies, which closes its channel;
//! - the kernel kills the first process when the launcher ends (`PR_SET_PDEATHSIG`);
//! - the kernel kills all processes inside when the first process ends, since it has number 1 in their namespace.
//!
//! # Start-up sequence
//!
//! For [`Policy::Full`], with the system calls of each step:
//!
//! | process | step | system calls | file |
//! | --- | --- | --- | --- |
//! | fork server | 1. execute this program with a clean environment, once per host process | `execve`, `setpgid` | `fork_server.rs` |
//! | | 2. encode the seccomp filters, which launchers inherit | | `seccomp.rs`, `bpf.rs` |
//! | | 3. fork the launcher; give it its channel, standard output and standard error | `fork`, `dup2`, `setpgid`, `pidfd_open` | `fork_server.rs` |
//! | host | 4. create the control group, if one is delegated, and move the launcher into it | `mkdir`, `write` to `cgroup.procs` | `control_group.rs` |
//! | | 5. send the specification | `sendmsg` | `sandbox_handle.rs` |
//! | launcher | 6. set umask and `oom_score_adj` | `umask`, `write` | `launcher.rs` |
//! | | 7. as root: bind the visible paths below a folder that the session's user can reach | `unshare(CLONE_NEWNS)`, `mount(MS_REC \| MS_PRIVATE)`, `mount(MS_BIND)` | `namespaces.rs`, `rootfs.rs` |
//! | | 8. as root: change to the session's user | `setgroups`, `setresgid`, `setresuid`, `prctl(PR_SET_DUMPABLE)` | `syscalls.rs` |
//! | | 9. create the user namespace; map the user to 1000 | `unshare(CLONE_NEWUSER)`, `write` to `setgroups`, `uid_map`, `gid_map` | `namespaces.rs` |
//! | | 10. create mount, process, network, IPC, UTS and cgroup namespaces | `unshare`, `mount(MS_REC \| MS_PRIVATE)` | `namespaces.rs` |
//! | | 11. fork the first process; send its pidfd to the host; drop capabilities | `fork`, `pidfd_open`, `capset`, `prctl(PR_SET_NO_NEW_PRIVS)` | `launcher.rs` |
//! | first process | 12. end with the launcher | `prctl(PR_SET_PDEATHSIG)` | `init.rs` |
//! | | 13. set the host name, bring the loopback interface up | `sethostname`, `ioctl(SIOCSIFFLAGS)` | `namespaces.rs` |
//! | | 14. open the sources of all bind mounts | `open(O_PATH)` | `rootfs.rs` |
//! | | 15. mount the root, `/usr`, `/etc`, `/dev`, `/tmp`, `/dev/shm` and the folders | `mount`, `mount_setattr` | `rootfs.rs` |
//! | | 16. mount a new `/proc`; forbid nested user namespaces; limit the buffers of sockets; hide the machine's part; make it read-only | `mount`, `write` to `max_user_namespaces`, `tcp_wmem` and others, `mount_setattr` | `rootfs.rs` |
//! | | 17. enter the root, detach the host's; make the root read-only | `pivot_root`, `umount2(MNT_DETACH)`, `mount_setattr` | `rootfs.rs` |
//! | | 18. create the listening socket, if the specification has one; create the Landlock ruleset | `socket`, `bind`, `listen`, `landlock_create_ruleset`, `landlock_add_rule` | `namespaces.rs`, `landlock.rs` |
//! | | 19. fork the program; drop capabilities; supervise | `signalfd`, `fork`, `capset` | `init.rs` |
//! | program | 20. end with the first process; reset signals; leave the terminal | `prctl(PR_SET_PDEATHSIG)`, `sigprocmask`, `setsid` | `program.rs` |
//! | | 21. standard input, working directory | `dup2`, `chdir` | `program.rs` |
//! | | 22. resource limits | `setrlimit` | `program.rs` |
//! | | 23. no new privileges | `prctl(PR_SET_NO_NEW_PRIVS)` | `program.rs` |
//! | | 24. Landlock | `landlock_restrict_self` | `landlock.rs` |
//! | | 25. drop the bounding set, the ambient set and all capabilities | `prctl(PR_CAPBSET_DROP)`, `prctl(PR_CAP_AMBIENT)`, `capset` | `syscalls.rs` |
//! | | 26. mark all descriptors but the standard streams to be closed on exec | `close_range(CLOSE_RANGE_CLOEXEC)` | `program.rs` |
//! | | 27. install the system call filters | `seccomp(SECCOMP_SET_MODE_FILTER)` | `seccomp.rs` |
//! | | 28. execute the program | `execve` | `program.rs` |
//!
//! A step that fails is reported with its name, its system call and the system's error, and the launcher exits: no step
//! is ever skipped. A process that enters an idle sandbox performs the steps of its plan in place of 20 to 28: see
//! [`Entry`].
//!
//! # Layers
//!
//! Each layer holds if another one fails.
//!
//! | layer | file | protects |
//! | --- | --- | --- |
//! | a user per session, if the host process is root | `namespaces.rs` | the files and processes of other sessions |
//! | user namespace, no capabilities, no nested namespaces | `namespaces.rs`, `rootfs.rs` | everything that requires privileges |
//! | process, network, IPC, UTS and cgroup namespaces | `namespaces.rs` | processes, network and names of the host |
//! | read-only root in memory | `rootfs.rs` | files of the host, devices, kernel settings |
//! | resource limits, measured memory, a control group if one is delegated | `program.rs`, `memory_limit.rs`, `socket_memory.rs`, `control_group.rs` | the machine's memory, disk and processes |
//! | Landlock | `landlock.rs` | files outside the writable folders; processes outside |
//! | seccomp | `seccomp.rs` | most of the kernel |
//!
//! With [`Policy::Weak`], which is never chosen automatically, there are only the user, per-process limits, Landlock
//! and seccomp. `docs/security.md` has what each layer is worth if another one fails.

#![cfg(target_os = "linux")]

mod architecture;
mod bpf;
mod channel;
mod control_group;
mod devices;
mod entry;
mod error;
mod exit_status;
mod fork_server;
mod init;
mod landlock;
mod launcher;
mod memory_limit;
mod namespaces;
mod policy;
mod probe;
mod process_tree;
mod program;
mod protocol;
mod rootfs;
mod sandbox_handle;
mod seccomp;
mod socket_memory;
mod spec;
mod syscalls;
pub mod worker;

pub use channel::Channel;
pub use control_group::{cgroup2_mount_point, delegated_control_groups};
pub use devices::check as check_devices;
pub use entry::{EnteredProcess, Entry, EntryHandle, EntryStreams};
pub use error::{DeviceError, Error, Hint, SpecError, Step, StepFailure};
pub use exit_status::ExitStatus;
pub use fork_server::{run_fork_server, run_fork_server_if_child, set_fork_server_command};
pub use policy::{IsolationLevel, Policy, SESSION_USERS};
pub use probe::{ProbeResult, probe};
pub use process_tree::{children, process_id};
pub use sandbox_handle::{Sandbox, Streams, spawn};
pub use spec::{Folder, FolderSource, ResourceLimits, Spec};
