//! The policies without namespaces: Landlock and system call filters, or no isolation.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use belljar_sandbox::{self as sandbox, Error, ExitStatus, Folder, FolderSource, IsolationLevel, Policy, Spec, Step};

use crate::trials::TASK_ARGUMENT;
use crate::trials::host_user::{HostUser, TestResult};
use crate::trials::scenarios::{equal, python_spec, run_under};

const CODE: &str = "import errno, os, resource, socket, subprocess, sys
def refused(attempt):
    try: attempt()
    except OSError as error: return error.errno in (errno.EPERM, errno.EACCES)
    return False
folder, secret, tcp, udp, path, victim = sys.argv[1:]
print(refused(lambda: open(secret)),
      refused(lambda: open('/etc/passwd')),
      refused(lambda: os.listdir('/')),
      refused(lambda: open('/dev/shm/x', 'w')),
      refused(lambda: open(f'/proc/{victim}/environ')),
      refused(lambda: os.kill(int(victim), 9)),
      refused(lambda: socket.create_connection(('127.0.0.1', int(tcp)))),
      refused(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', int(udp)))),
      refused(lambda: socket.socket(socket.AF_UNIX).connect(path)),
      refused(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)),
      refused(lambda: os.unshare(0x10000000) if hasattr(os, 'unshare') else os.chroot('/')),
      refused(lambda: os.chmod(secret, 0o666)),
      refused(lambda: os.fchmod(os.open(sys.executable, os.O_RDONLY), 0o777)),
      refused(lambda: os.utime(secret)),
      refused(lambda: os.setxattr(secret, 'user.x', b'x')),
      refused(lambda: os.chown(secret, -1, os.getgid())),
      refused(lambda: resource.prlimit(int(victim), resource.RLIMIT_CPU, (0, 0))),
      refused(lambda: os.setpriority(os.PRIO_PROCESS, int(victim), 19)),
      refused(lambda: os.sched_setaffinity(int(victim), [0])),
      refused(lambda: os.sched_setscheduler(int(victim), os.SCHED_IDLE, os.sched_param(0))),
      refused(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
check = open('/proc/self/status').read(100) and os.listdir('/proc/self/fd')
open(folder + '/own', 'w').write('x')
print(subprocess.check_output(['/bin/echo', 'works'], text=True), end='')
";

pub(crate) fn weak_sandbox_refuses_access_to_the_host() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let own = folder.path().join("own");
    fs::create_dir(&own)?;
    let secret = folder.path().join("secret");
    fs::write(&secret, "secret")?;
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    udp.set_nonblocking(true)?;
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
    let mut victim = Command::new("/bin/sleep").arg("1000").spawn()?;
    let mut spec = python_spec(CODE);
    if let Some(user) = HostUser::session_user(1) {
        chown(&own, Some(user), Some(user))?;
    }
    let (tcp, port) = (tcp.local_addr()?.port(), udp.local_addr()?.port());
    let words = [own.display().to_string(), secret.display().to_string(), tcp.to_string(), port.to_string()];
    spec.arguments
        .extend(words.into_iter().chain([path.display().to_string(), victim.id().to_string()]).map(Into::into));
    spec.directory.clone_from(&own);
    spec.folders = vec![Folder { inside: own.clone(), source: FolderSource::Host(own) }];
    let mut running = run_under(&spec, Policy::Weak)?;
    let text = running.rest()?;
    let ended = running.sandbox.wait()?;
    let alive = victim.try_wait()?.is_none();
    victim.kill()?;
    victim.wait()?;
    let expected = format!("{}\nworks\n", ["True"; 21].join(" "));
    equal!(&text, &expected);
    equal!((ended, alive, udp.recv(&mut [0; 4]).is_err()), (ExitStatus::Exited(0), true, true));
    Ok(())
}

pub(crate) fn weak_sandbox_kills_processes_left_behind() -> TestResult {
    // One process that leaves its parent's session, and one that never stops forking.
    let code = "import os, subprocess, sys, time
left = subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)
forking = os.fork()
if forking == 0:
    while True:
        if os.fork(): os._exit(0)
        time.sleep(0.001)
print(left.pid, flush=True)
time.sleep(1000)";
    let mut running = run_under(&Spec { directory: "/".into(), ..python_spec(code) }, Policy::Weak)?;
    let left = format!("/proc/{}", running.line()?);
    equal!(Path::new(&left).exists(), true);
    drop(running.sandbox);
    equal!(Path::new(&left).exists(), false);
    // Reading ends only if no process can still write to the pipe.
    running.output.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The task of a process that probes the machine while namespaces are refused.
pub(crate) const PROBE: &str = "probe";

pub(crate) fn probe_without_namespaces() -> TestResult {
    let probe = sandbox::probe(None)?;
    let refusal = probe.check(Policy::Full).err().ok_or("the full sandbox is available")?;
    equal!(matches!(refusal, Error::IsolationUnavailable { policy: Policy::Full, .. }), true);
    let missing = probe.missing.ok_or("no step is missing")?;
    equal!(
        (probe.level, missing.step, missing.errno),
        (Some(IsolationLevel::Weak), Step::UserNamespace, Some(libc::EPERM))
    );
    probe.missing_for_weak.map_or(Ok(()), |missing| Err(missing.to_string()))?;
    writeln!(std::io::stdout(), "{:?}", refusal.hint().ok_or("no hint")?)?;
    Ok(())
}

/// The filter of the weak sandbox simulates a machine that refuses namespaces.
pub(crate) fn missing_namespaces_give_a_hint() -> TestResult {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let program = folder.path().join("program");
    fs::copy("/proc/self/exe", &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let arguments = [program.display().to_string(), TASK_ARGUMENT.to_owned(), PROBE.to_owned()];
    let mut spec = Spec { user: HostUser::session_user(1), directory: "/".into(), ..Spec::new(arguments) };
    spec.readable = vec![program, "/dev/null".into()];
    let mut running = run_under(&spec, Policy::Weak)?;
    let text = running.rest()?;
    equal!((running.sandbox.wait()?, text.trim()), (ExitStatus::Exited(0), "AllowUserNamespaces"));
    Ok(())
}

pub(crate) fn unsandboxed_program_reads_host_files() -> TestResult {
    let mut running = run_under(&python_spec("print(open('/etc/passwd').readline()[:4])"), Policy::Unsandboxed)?;
    equal!(running.rest()?, "root\n");
    equal!(running.sandbox.wait()?, ExitStatus::Exited(0));
    Ok(())
}
