"""Attacks from inside the sandbox, and operations that ordinary code must be able to perform.

Each function decorated with `attack` must fail with one of the given errors; each decorated with `holds` or `works`
must return. Each runs in a process of its own, for a bounded time. The results are lines of JSON on standard output.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

TIMEOUT_SECONDS = 20
FUNCTIONS = {}
CONTEXT = {}
HOME = "/home/user"
HOST_FOLDER = "/shared"
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
REFUSED = {errno.EPERM, errno.EACCES, errno.EROFS, errno.ENOSYS}
X32 = 0x40000000
NEW_NAMESPACES = {
    "user": 0x10000000, "mount": 0x00020000, "process": 0x20000000, "network": 0x40000000,
    "ipc": 0x08000000, "uts": 0x04000000, "cgroup": 0x02000000, "time": 0x00000080,
}


class Unexpected(Exception):
    """An attempt had another result than the expected one."""


def attack(*errnos, killed_by=None):
    """Declare that the function must fail with one of `errnos` (by default `REFUSED`), or be killed by a signal."""

    def mark(function):
        FUNCTIONS[function.__name__] = ("attack", function, set(errnos) or REFUSED, killed_by)
        return function

    return mark


def holds(function):
    """Declare that the function looks for something that must not exist inside, and returns if it does not."""
    FUNCTIONS[function.__name__] = ("holds", function, None, None)
    return function


def works(function):
    """Declare that the function performs an operation of ordinary code, and returns if it succeeded."""
    FUNCTIONS[function.__name__] = ("works", function, None, None)
    return function


def call(number, *arguments):
    """Make a raw system call; integers are passed with all 64 bits."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *converted)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def check(condition, what):
    if not condition:
        raise Unexpected(what)


def refused(attempt, *errnos):
    """Check that `attempt` fails with one of `errnos`, or with any of `REFUSED` by default."""
    try:
        attempt()
    except OSError as error:
        check(error.errno in (set(errnos) or REFUSED), f"failed otherwise: {error}")
        return
    raise Unexpected("it was not refused")


# --- Files -----------------------------------------------------------------------------------------------------------


@attack(errno.ENOENT)
def a_file_of_the_host_is_read():
    open(CONTEXT["secret"]).read()


@attack(errno.ENOENT)
def another_sessions_file_is_read():
    open(CONTEXT["other_session"] + "/diary").read()


@attack(errno.ENOENT)
def another_sessions_folder_is_listed():
    os.listdir(CONTEXT["other_session"])


@attack(errno.ENOENT)
def the_hosts_passwords_are_read():
    open("/etc/shadow").read()


@holds
def the_root_holds_nothing_of_the_host():
    expected = {"bin", "dev", "etc", "home", "proc", "sbin", "shared", "sys", "tmp", "usr"}
    expected |= {"lib", "lib32", "lib64", "libx32"}
    check(set(os.listdir("/")) <= expected, f"{os.listdir('/')}")
    check(os.listdir("/home") == ["user"], f"{os.listdir('/home')}")
    check(os.listdir("/tmp") == [], f"{os.listdir('/tmp')}")


@holds
def settings_are_the_sandboxs_own():
    check("root" not in open("/etc/passwd").read(), "the host's users are known")
    check(not os.path.exists("/etc/resolv.conf"), "there is a resolver")
    check(not os.path.exists("/etc/hostname"), "the host's name is known")


@attack()
def a_file_is_made_in_the_root():
    open("/new", "w")


@attack()
def a_program_of_the_system_is_overwritten():
    open("/usr/bin/env", "r+b")


@attack()
def a_library_is_added():
    open("/usr/lib/added.so", "w")


@attack()
def a_setting_is_changed():
    open("/etc/passwd", "a")


@attack()
def a_setting_is_replaced():
    os.rename("/etc/passwd", "/etc/group")


@attack(errno.EACCES, errno.EROFS, errno.ETXTBSY, errno.EPERM)
def the_own_executable_is_overwritten():
    open("/proc/self/exe", "r+b")


@attack(errno.EPERM, errno.EROFS)
def the_own_executable_is_made_writable():
    os.chmod("/proc/self/exe", 0o777)


@attack(errno.EPERM, errno.EROFS)
def the_own_executable_is_touched():
    os.utime("/proc/self/exe", (0, 0))


@attack(errno.EPERM, errno.EACCES, errno.ENOENT)
def a_mapped_file_is_reached_past_its_mount():
    folder = "/proc/self/map_files"
    for name in os.listdir(folder):
        os.chmod(f"{folder}/{name}", 0o777)


@attack(errno.EPERM, errno.EACCES)
def the_first_processs_root_is_walked():
    os.listdir("/proc/1/root")


@attack(errno.EPERM, errno.EACCES)
def the_first_processs_descriptors_are_taken():
    for name in os.listdir("/proc/1/fd"):
        os.open(f"/proc/1/fd/{name}", os.O_RDONLY)


@attack(errno.EPERM, errno.EACCES)
def the_first_processs_environment_is_read():
    open("/proc/1/environ").read(1)


@attack(errno.EPERM, errno.EACCES, errno.EROFS)
def the_first_processs_memory_is_written():
    open("/proc/1/mem", "r+b")


@attack()
def a_file_is_opened_by_its_handle():
    handle = struct.pack("Iiq", 8, 1, 2) + bytes(128)
    call(304, os.open("/", os.O_RDONLY), ctypes.create_string_buffer(handle), os.O_RDONLY)


@attack()
def a_block_device_is_made():
    os.mknod(f"{HOME}/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))


@attack()
def a_device_of_memory_is_made():
    os.mknod("/tmp/mem", 0o600 | stat.S_IFCHR, os.makedev(1, 1))


@holds
def dev_has_only_harmless_devices():
    expected = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm"}
    expected |= {"stdin", "stdout", "stderr", "fd"}
    check(set(os.listdir("/dev")) <= expected, f"{os.listdir('/dev')}")


@attack()
def a_device_is_replaced():
    os.unlink("/dev/null")


@attack(errno.EXDEV, errno.EPERM, errno.EACCES)
def a_file_of_the_system_is_linked_into_the_session():
    os.link("/usr/bin/env", f"{HOST_FOLDER}/env")


@attack(errno.ENOENT)
def a_link_leads_to_a_file_of_the_host():
    path = f"{HOST_FOLDER}/link-{os.getpid()}"
    os.symlink(CONTEXT["secret"], path)
    open(path).read()


@attack(errno.ENOENT)
def dots_lead_out_of_the_root():
    open("/".join([".."] * 60) + CONTEXT["secret"]).read()


@attack(errno.ENOENT)
def dots_lead_out_of_the_sessions_folder():
    open(f"{HOST_FOLDER}/../{os.path.basename(CONTEXT['secret'])}").read()


@attack()
def a_set_user_id_bit_is_set():
    path = f"{HOST_FOLDER}/lending-{os.getpid()}"
    open(path, "w").close()
    os.chmod(path, 0o4755)


@attack()
def a_set_user_id_bit_is_set_by_descriptor():
    descriptor = os.open(f"{HOST_FOLDER}/lending-by-descriptor", os.O_CREAT | os.O_WRONLY)
    os.fchmod(descriptor, 0o6755)


@attack()
def a_file_is_made_with_a_set_user_id_bit():
    os.open(f"{HOST_FOLDER}/lending-at-once", os.O_CREAT | os.O_WRONLY, 0o4755)


@attack()
def an_unnamed_file_is_created_with_a_set_user_id_bit():
    os.open(HOST_FOLDER, os.O_TMPFILE | os.O_WRONLY, 0o4755)


@attack(errno.ENOSYS)
def a_set_user_id_bit_is_set_by_openat2():
    how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    call(437, -100, f"{HOST_FOLDER}/x".encode(), ctypes.create_string_buffer(how), len(how))


@holds
def no_descriptor_is_left_open():
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    open_ones = {int(name) for name in os.listdir(listing)}
    # The pipe for the result, the folder, and the descriptor that `listdir` opens.
    known = {0, 1, 2, CONTEXT["result_pipe"], listing, max(open_ones)}
    check(open_ones <= known, f"{sorted(open_ones)}")


@holds
def the_environment_is_only_what_was_given():
    check(set(os.environ) <= {"PATH", "LANG", "HOME", "LC_CTYPE"}, f"{dict(os.environ)}")
    check(CONTEXT["marker"] not in open("/proc/self/environ").read(), "the host's environment is in /proc")


# --- Exhausting limited resources -----------------------------------------------------------------------------------


def fill(folder, most):
    written = 0
    block = bytes(1 << 20)
    with open(f"{folder}/flood-{os.getpid()}", "wb", buffering=0) as file:
        try:
            while written < most:
                written += file.write(block)
        finally:
            os.unlink(file.name)
    raise Unexpected(f"{written} bytes were taken")


@attack(errno.ENOSPC)
def the_sessions_folder_is_flooded():
    fill(HOME, 200 << 20)


@attack(errno.ENOSPC)
def tmp_is_flooded():
    fill("/tmp", 200 << 20)


@attack(errno.ENOSPC)
def shared_memory_is_flooded():
    fill("/dev/shm", 200 << 20)


@attack(errno.ENOSPC)
def inodes_are_flooded():
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        for number in range(100_000):
            os.mkdir(f"{folder}/{number}")


@attack(errno.EFBIG)
def a_folder_of_the_host_takes_a_huge_file():
    with open(f"{HOST_FOLDER}/huge-{os.getpid()}", "wb") as file:
        os.truncate(file.fileno(), 1 << 40)


@attack(errno.EMFILE)
def descriptors_are_flooded():
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(100_000)]
    raise Unexpected(f"{len(kept)} descriptors")


@attack()
def a_pipe_is_enlarged():
    import fcntl

    fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)


@holds
def buffers_of_sockets_are_not_enlarged():
    for end in [*socket.socketpair(), socket.socket(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)]:
        # SO_SNDBUF, SO_RCVBUF, and their privileged forms
        for option in [7, 8, 32, 33]:
            kind = 7 if option in (7, 32) else 8
            before = end.getsockopt(socket.SOL_SOCKET, kind)
            end.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
            check(end.getsockopt(socket.SOL_SOCKET, kind) == before, f"option {option}")
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    check(client.getsockopt(socket.SOL_SOCKET, 7) <= 1 << 18, "the buffer of a connection is large")


@attack()
def pages_are_moved_into_a_pipe():
    # splice
    call(275, os.open("/usr/bin/env", os.O_RDONLY), 0, os.pipe()[1], 0, 4096, 0)


@attack()
def pages_of_memory_are_moved_into_a_pipe():
    # vmsplice
    data = ctypes.create_string_buffer(4096)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(data), 4096))
    call(278, os.pipe()[1], vector, 1, 0)


@attack(errno.ENOTSOCK)
def pages_of_a_file_are_sent():
    one, _other = socket.socketpair()
    os.sendfile(one.fileno(), os.open("/usr/bin/env", os.O_RDONLY), 0, 1)


@works
def files_are_copied_and_sent():
    import shutil

    path = f"{HOME}/copied-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(b"x" * 100_000)
    shutil.copy(path, f"{path}-2")
    check(os.path.getsize(f"{path}-2") == 100_000, "the copy differs")
    shutil.copyfile(path, f"/tmp/{os.path.basename(path)}")
    one, other = socket.socketpair()
    with open(path, "rb") as file:
        threading.Thread(target=lambda: (one.sendfile(file), one.close())).start()
        check(sum(len(part) for part in iter(lambda: other.recv(65536), b"")) == 100_000, "it was not sent")
    subprocess.run(["cp", path, f"{path}-3"], check=True)


@attack(errno.ENOSPC, errno.EIO, errno.ENOENT, errno.EMFILE)
def terminals_are_flooded():
    kept = [os.openpty() for _ in range(1000)]
    raise Unexpected(f"{len(kept)} terminals")


@attack(errno.EPERM, errno.ENOMEM, errno.EAGAIN)
def memory_is_locked():
    call(149, ctypes.create_string_buffer(64 << 20), 64 << 20)


# --- The kernel's settings -------------------------------------------------------------------------------------------


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


@attack()
def the_core_pattern_is_set():
    write("/proc/sys/kernel/core_pattern", "|/tmp/x")


@attack()
def namespaces_are_allowed_again():
    write("/proc/sys/user/max_user_namespaces", "100")


@attack()
def a_setting_of_the_network_is_changed():
    write("/proc/sys/net/ipv4/ip_forward", "1")


@holds
def sysrq_is_out_of_reach():
    try:
        write("/proc/sysrq-trigger", "b")
    except OSError:
        return
    check(os.stat("/proc/sysrq-trigger").st_rdev == os.makedev(1, 3), "sysrq took a request")


@attack()
def the_own_process_is_protected_from_the_out_of_memory_killer():
    write("/proc/self/oom_score_adj", "-1000")


@attack()
def users_are_mapped():
    write("/proc/self/uid_map", "0 0 4294967295")


@holds
def the_machines_part_of_proc_is_hidden():
    for name in ["kcore", "kallsyms", "keys", "key-users", "kmsg", "timer_list", "cmdline", "config.gz", "sched_debug"]:
        path = f"/proc/{name}"
        if os.path.exists(path):
            check(os.stat(path).st_rdev == os.makedev(1, 3), f"{path} is the kernel's")
            check(open(path, "rb").read(1) == b"", f"{path} is not empty")


@holds
def only_the_sandboxs_processes_are_seen():
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    check(len(numbers) < 20, f"{len(numbers)} processes")
    for number in numbers:
        try:
            name = open(f"/proc/{number}/comm").read().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        check("victim" not in name and "sleep" not in name, f"{number} is {name}")


@holds
def sysfs_is_not_mounted():
    check(not os.path.exists("/sys/kernel"), "/sys/kernel")
    check(not os.path.exists("/sys/fs"), "/sys/fs")
    check(not os.path.exists("/sys/class"), "/sys/class")


# --- Other processes -------------------------------------------------------------------------------------------------


@attack(errno.ESRCH, errno.EPERM)
def a_process_of_the_host_is_killed():
    os.kill(CONTEXT["victim"], signal.SIGKILL)


@attack(errno.ESRCH, errno.EPERM, errno.EINVAL)
def a_process_of_the_host_is_held_by_descriptor():
    os.pidfd_open(CONTEXT["victim"])


@attack(errno.EPERM)
def the_first_process_is_killed():
    os.kill(1, signal.SIGKILL)


@attack()
def the_first_process_is_traced():
    call(101, 16, 1, 0, 0)


@attack()
def the_parent_is_asked_to_trace():
    call(101, 0, 0, 0, 0)


@attack()
def another_processs_memory_is_read():
    vector = struct.pack("QQ", 0, 0)
    call(310, 1, ctypes.create_string_buffer(vector), 1, ctypes.create_string_buffer(vector), 1, 0)


@attack()
def another_processs_memory_is_overwritten():
    vector = struct.pack("QQ", 0, 0)
    call(311, 1, ctypes.create_string_buffer(vector), 1, ctypes.create_string_buffer(vector), 1, 0)


@attack()
def another_processs_descriptor_is_taken():
    call(438, os.pidfd_open(os.getpid()), 0, 0)


@attack()
def kernel_objects_are_compared():
    call(312, os.getpid(), os.getpid(), 0, 0, 0)


@attack()
def own_priority_is_raised():
    os.setpriority(os.PRIO_PROCESS, 0, -10)


@attack()
def real_time_is_claimed():
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


@attack()
def a_limit_is_raised():
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1, hard + 1))
    except ValueError as error:
        raise PermissionError(errno.EPERM, str(error)) from error


@attack()
def the_first_processs_limits_are_changed():
    resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1))


@holds
def the_first_process_is_not_slowed_down():
    refused(lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
    refused(lambda: os.setpriority(os.PRIO_USER, 0, 19))
    refused(lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
    refused(lambda: os.sched_setparam(1, os.sched_param(0)))
    refused(lambda: os.sched_setaffinity(1, {0}))
    refused(lambda: call(314, 1, ctypes.create_string_buffer(struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0)), 0))


@holds
def crashes_leave_no_core():
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    check(soft == hard == 1, f"{soft}, {hard}")


# --- Namespaces, mounts, roots ---------------------------------------------------------------------------------------


@holds
def no_namespace_is_unshared():
    for flag in NEW_NAMESPACES.values():
        refused(lambda flag=flag: call(272, flag))


@holds
def no_process_is_created_in_a_new_namespace():
    for name, flag in NEW_NAMESPACES.items():
        if name != "time":
            refused(lambda flag=flag: call(56, flag | signal.SIGCHLD, 0, 0, 0, 0))


@attack(errno.ENOSYS)
def a_process_is_made_by_clone3():
    arguments = struct.pack("Q" * 11, NEW_NAMESPACES["user"], *([0] * 10))
    call(435, ctypes.create_string_buffer(arguments), len(arguments))


@attack()
def a_namespace_is_entered():
    descriptor = os.open("/proc/1/ns/mnt", os.O_RDONLY)
    call(308, descriptor, 0)


@attack()
def the_own_namespace_is_entered_again():
    call(308, os.open("/proc/self/ns/user", os.O_RDONLY), 0)


def mount(source, target, kind, flags):
    arguments = [ctypes.create_string_buffer(text) for text in (source, target, kind)]
    call(165, *arguments, flags, 0)


@attack()
def memory_is_mounted():
    mount(b"tmpfs", b"/tmp", b"tmpfs", 0)


@attack()
def a_fresh_proc_is_mounted():
    mount(b"proc", b"/tmp", b"proc", 0)


@attack()
def the_root_is_mounted_again_to_be_written():
    mount(b"none", b"/", b"none", 32 | 4096)


@attack()
def a_mount_is_unmounted():
    call(166, b"/proc", 2)


@attack()
def the_root_is_changed_by_pivot_root():
    call(155, b".", b".")


@attack()
def the_root_is_changed_by_chroot():
    os.chroot("/tmp")


@holds
def the_newer_calls_for_mounts_are_refused():
    for number in [428, 429, 430, 431, 432, 433, 442]:
        refused(lambda number=number: call(number, 0, 0, 0, 0, 0))


@attack()
def the_hosts_name_is_changed():
    socket.sethostname("owned")


@attack()
def the_control_group_is_left():
    write("/sys/fs/cgroup/cgroup.procs", str(os.getpid()))


FUNCTIONS["the_control_group_is_left"] = ("attack", the_control_group_is_left, REFUSED | {errno.ENOENT}, None)


# --- Privileges ------------------------------------------------------------------------------------------------------


@holds
def the_code_has_no_privileges():
    status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]:
        check(int(status[name], 16) == 0, f"{name} is {status[name]}")
    check(status["NoNewPrivs"] == "1", "new privileges may be gained")
    check(status["Seccomp"] == "2", "seccomp filters are not installed")
    check(set(status["Uid"].split()) == {"1000"}, status["Uid"])
    check(set(status["Gid"].split()) == {"1000"}, status["Gid"])
    check(set(status["Groups"].split()) <= {"1000", "65534"}, status["Groups"])


@attack(errno.EPERM, errno.EINVAL)
def root_is_claimed():
    os.setuid(0)


@attack(errno.EPERM, errno.EINVAL)
def roots_group_is_claimed():
    os.setgid(0)


@attack()
def groups_are_claimed():
    os.setgroups([0])


@attack()
def capabilities_are_claimed():
    header = struct.pack("Ii", 0x20080522, 0)
    call(126, ctypes.create_string_buffer(header), ctypes.create_string_buffer(b"\xff" * 24))


@holds
def set_user_id_programs_gain_nothing():
    for program in ["/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount", "/usr/bin/newgrp"]:
        if os.path.exists(program):
            check(os.statvfs(program).f_flag & os.ST_NOSUID, f"{program} is on a mount that lends")
    ended = subprocess.run(["/usr/bin/env", "id", "-u"], capture_output=True, text=True, check=True)
    check(ended.stdout.strip() == "1000", ended.stdout)


@attack()
def the_link_to_the_executable_is_changed():
    if LIBC.prctl(35, 13, os.open("/usr/bin/env", os.O_RDONLY), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_MM)")


# --- Network ---------------------------------------------------------------------------------------------------------


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(3)
        client.connect(address)


UNREACHABLE = {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ECONNREFUSED, errno.EADDRNOTAVAIL}


@attack(errno.ECONNREFUSED)
def the_hosts_loopback_is_connected_to():
    connect(socket.AF_INET, ("127.0.0.1", CONTEXT["tcp"]))


@attack(*UNREACHABLE)
def the_hosts_loopback_is_connected_to_by_ipv6():
    connect(socket.AF_INET6, ("::1", CONTEXT["tcp"]))


@attack(errno.ECONNREFUSED)
def a_datagram_is_sent_to_the_hosts_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(3)
        client.connect(("127.0.0.1", CONTEXT["udp"]))
        client.send(b"from inside")
        client.recv(10)


@attack(*UNREACHABLE)
def the_metadata_service_is_connected_to():
    connect(socket.AF_INET, ("169.254.169.254", 80))


@attack(*UNREACHABLE)
def a_datagram_is_sent_to_the_metadata_service():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("169.254.169.254", 80))


@attack(*UNREACHABLE)
def a_private_network_is_connected_to():
    connect(socket.AF_INET, ("10.0.0.1", 80))


@attack(*UNREACHABLE)
def the_internet_is_connected_to():
    connect(socket.AF_INET, ("192.0.2.1", 443))


@attack(*UNREACHABLE)
def a_name_server_is_queried():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.53", 53))


@attack()
def a_raw_socket_is_made():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attack()
def a_raw_socket_of_ipv6_is_made():
    socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


@attack()
def a_packet_socket_is_made():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)


@holds
def other_protocols_of_the_internet_are_refused():
    # MPTCP, SCTP, UDP-Lite, DCCP, ping
    for kind, protocol in [(1, 262), (1, 132), (5, 0), (2, 136), (6, 33), (2, 1), (10, 0)]:
        for family in [socket.AF_INET, socket.AF_INET6]:
            refused(lambda: call(41, family, kind, protocol))


@holds
def sockets_of_other_families_are_refused():
    # vsock, algorithms, CAN, Bluetooth, TIPC, XDP, RDS
    for family in [40, 38, 29, 31, 30, 44, 21]:
        refused(lambda family=family: call(41, family, socket.SOCK_STREAM, 0))


@holds
def other_netlink_protocols_are_refused():
    # sock_diag, netfilter, audit, uevents, generic
    for protocol in [4, 12, 9, 15, 16]:
        refused(lambda protocol=protocol: call(41, socket.AF_NETLINK, socket.SOCK_RAW, protocol))


@attack(errno.ECONNREFUSED, errno.EPERM)
def an_abstract_socket_of_the_host_is_connected_to():
    connect(socket.AF_UNIX, "\0" + CONTEXT["abstract"])


@attack(errno.ENOENT)
def a_socket_of_the_host_is_connected_to():
    connect(socket.AF_UNIX, CONTEXT["socket"])


@holds
def the_hosts_services_have_no_sockets_here():
    for path in ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/dev/log", "/run/systemd"]:
        check(not os.path.exists(path), path)


@holds
def loopback_is_the_only_interface():
    check([name for _, name in socket.if_nameindex()] == ["lo"], f"{socket.if_nameindex()}")


@attack()
def an_address_is_added():
    import fcntl

    request = struct.pack("16sH2s4s8s", b"lo:1", socket.AF_INET, b"", socket.inet_aton("10.9.8.7"), b"")
    fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8916, request)


@holds
def interfaces_and_routes_are_not_changed():
    # RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_NEWROUTE, for the loopback interface
    for kind in [16, 17, 20, 24]:
        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        body = struct.pack("BxHiII", socket.AF_UNSPEC, 0, 1, 0, 1)
        netlink.send(struct.pack("IHHII", 16 + len(body), kind, 5, 1, 0) + body)
        answer = netlink.recv(4096)
        (answered, code) = struct.unpack_from("H", answer, 4)[0], struct.unpack_from("i", answer, 16)[0]
        check((answered, code) == (2, -errno.EPERM), f"{kind}: {answered}, {code}")


# --- Kernel interfaces -----------------------------------------------------------------------------------------------


@attack(errno.ENOSYS)
def io_uring_is_set_up():
    call(425, 8, ctypes.create_string_buffer(256))


@holds
def other_io_uring_calls_are_missing():
    refused(lambda: call(426, 0, 0, 0, 0, 0, 0), errno.ENOSYS)
    refused(lambda: call(427, 0, 0, 0, 0), errno.ENOSYS)


@attack()
def a_bpf_program_is_loaded():
    call(321, 5, ctypes.create_string_buffer(128), 128)


@attack()
def a_key_is_added():
    call(248, b"user", b"name", b"value", 5, -3)


@attack()
def a_key_is_requested():
    call(249, b"user", b"name", 0, -3)


@attack()
def a_keyring_is_read():
    call(250, 11, -3, 0, 0)


@attack()
def userfaultfd_is_opened():
    call(323, 0)


@attack()
def a_performance_event_is_opened():
    attributes = struct.pack("II", 1, 128) + bytes(120)
    call(298, ctypes.create_string_buffer(attributes), 0, -1, -1, 0)


@attack(errno.ENOSYS, errno.EPERM)
def a_call_is_made_by_its_x32_number():
    call(X32 | 39)


@attack(errno.ENOSYS, errno.EPERM)
def a_mount_is_made_by_its_x32_number():
    call(X32 | 165, 0, 0, 0, 0, 0)


@attack(killed_by=signal.SIGSYS)
def a_call_is_made_by_int_0x80():
    # mov eax, 20 (getpid of 32 bits); int 0x80; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    ctypes.CFUNCTYPE(ctypes.c_int)(address)()


@attack()
def another_kernel_is_loaded():
    call(246, 0, 0, 0, 0)


@attack()
def the_machine_is_restarted():
    call(169, 0xFEE1DEAD - (1 << 32), 672274793, 0x1234567, 0)


@holds
def modules_of_the_kernel_are_refused():
    refused(lambda: call(175, ctypes.create_string_buffer(64), 64, b""))
    refused(lambda: call(313, 0, b"", 0))
    refused(lambda: call(176, b"ext4", 0))


@holds
def io_ports_and_segments_are_refused():
    refused(lambda: call(172, 3))
    refused(lambda: call(173, 0, 1, 1))
    refused(lambda: call(154, 0, ctypes.create_string_buffer(16), 16))


@attack()
def the_kernels_log_is_read():
    call(103, 3, ctypes.create_string_buffer(100), 100)


@holds
def the_clock_is_out_of_reach():
    refused(lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
    refused(lambda: call(164, ctypes.create_string_buffer(16), 0))
    refused(lambda: call(159, ctypes.create_string_buffer(256)))


@holds
def swap_accounting_and_quotas_are_refused():
    refused(lambda: call(167, b"/tmp/x", 0))
    refused(lambda: call(163, b"/tmp/x"))
    refused(lambda: call(179, 0, b"/dev/vda", 0, 0))


@attack()
def a_terminal_is_typed_into():
    import fcntl
    import termios

    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")


@attack(errno.ENXIO, errno.EPERM, errno.ENOTTY)
def the_hosts_terminal_is_opened():
    open("/dev/tty")


@attack()
def memfd_is_created():
    os.memfd_create("x")


@attack(errno.EPERM)
def anonymous_memory_is_shared():
    mmap.mmap(-1, 1 << 20)


@attack(errno.EPERM)
def anonymous_memory_is_shared_by_map_shared_validate():
    # MAP_SHARED_VALIDATE | MAP_ANONYMOUS, with bits above those that the kernel reads.
    call(9, 0, 1 << 20, 3, 0x23 | 1 << 40, -1, 0)


@attack(errno.EACCES)
def dev_zero_is_mapped_shared_and_writable():
    mmap.mmap(os.open("/dev/zero", os.O_RDWR), 1 << 20)


@attack(errno.EACCES)
def mapping_of_dev_zero_is_made_writable():
    mmap.mmap(os.open("/dev/zero", os.O_RDONLY), 1 << 20, prot=mmap.PROT_READ | mmap.PROT_WRITE)


@works
def dev_zero_is_read():
    with open("/dev/zero", "rb") as zeros:
        check(zeros.read(3) == b"\0\0\0", "")


@works
def processes_share_named_memory():
    from multiprocessing import shared_memory

    memory = shared_memory.SharedMemory(create=True, size=4096)
    process = os.fork()
    if process == 0:
        memory.buf[:3] = b"abc"
        os._exit(0)
    os.waitpid(process, 0)
    check(bytes(memory.buf[:3]) == b"abc", "")
    memory.close()
    memory.unlink()


@holds
def system_v_objects_are_refused():
    refused(lambda: call(29, 0, 1 << 30, 0o1600))
    refused(lambda: call(64, 0, 1, 0o1600))
    refused(lambda: call(68, 0, 0o1600))
    refused(lambda: call(240, b"x", 0o102, 0o600, 0))


@attack()
def personality_makes_data_executable():
    call(135, 0x0400000)


@attack()
def addresses_are_made_predictable():
    call(135, 0x0040000)


@attack()
def fanotify_is_initialised():
    call(300, 0, 0)


@attack()
def an_additional_filter_loosens_the_first():
    instruction = struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(instruction)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(buffer)))
    check(LIBC.prctl(22, 2, program, 0, 0) == 0, "a stricter filter was refused")
    mount(b"tmpfs", b"/tmp", b"tmpfs", 0)


@attack()
def additional_landlock_rules_loosen_the_first():
    # LANDLOCK_CREATE_RULESET for write_file; a rule that allows it below /; then a write there.
    rules = call(444, ctypes.create_string_buffer(struct.pack("Q", 1 << 1)), 8, 0)
    beneath = struct.pack("=Qi", 1 << 1, os.open("/", os.O_PATH))
    call(445, rules, 1, ctypes.create_string_buffer(beneath), 0)
    call(446, rules, 0)
    open("/usr/bin/env", "r+b")


@holds
def executed_programs_are_confined():
    script = "import os\ntry: os.chroot('/tmp')\nexcept PermissionError: print('refused')"
    ended = subprocess.run([CONTEXT["python"], "-c", script], capture_output=True, text=True, check=True)
    check(ended.stdout == "refused\n", ended.stdout + ended.stderr)


# --- Ordinary code ---------------------------------------------------------------------------------------------------


@works
def threads_run():
    results = []
    threads = [threading.Thread(target=results.append, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(sorted(results) == list(range(20)), f"{results}")


@works
def a_shell_runs():
    check(subprocess.check_output("ls /usr | wc -l && echo $((6 * 7))", shell=True, text=True).endswith("42\n"), "")


@works
def a_program_runs_and_is_waited_for():
    check(subprocess.run(["/bin/sh", "-c", "exit 7"]).returncode == 7, "")


@works
def processes_share_work():
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        check(pool.map(abs, [-1, -2, -3]) == [1, 2, 3], "")


@works
def processes_share_memory():
    from multiprocessing import Lock, shared_memory

    with Lock():
        block = shared_memory.SharedMemory(create=True, size=1000)
        block.buf[0] = 7
        block.close()
        block.unlink()


@works
def a_database_is_kept():
    import sqlite3

    path = f"{HOME}/base-{os.getpid()}.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("create table t (x)")
        base.execute("insert into t values (1)")
    check(sqlite3.connect(path).execute("select x from t").fetchall() == [(1,)], "")
    os.unlink(path)


@works
def temporary_files_are_made():
    with tempfile.NamedTemporaryFile() as file, tempfile.TemporaryDirectory() as folder:
        file.write(b"x")
        check(os.path.isdir(folder), "")


@works
def a_terminal_is_made():
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.write(1, b"from the terminal")
        os._exit(0)
    check(b"from the terminal" in os.read(terminal, 100), "")
    os.waitpid(process, 0)


@works
def memory_is_mapped():
    with mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[:3] = b"abc"
        check(memory[:3] == b"abc", "")
    with open(f"{HOME}/mapped-{os.getpid()}", "w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096) as memory:
            memory[:3] = b"abc"


@works
def a_process_signals_itself():
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    check(got == [1, 1], f"{got}")


@works
def children_are_signalled():
    child = subprocess.Popen(["/bin/sleep", "100"])
    child.terminate()
    check(child.wait() == -signal.SIGTERM, "")


@works
def coroutines_run():
    import asyncio

    async def main():
        process = await asyncio.create_subprocess_exec("/bin/echo", "hello", stdout=subprocess.PIPE)
        output, _ = await process.communicate()
        await asyncio.sleep(0.01)
        return output

    check(asyncio.run(main()) == b"hello\n", "")


@works
def loopback_answers_inside():
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
        client.sendall(b"x")
        check(connection.recv(1) == b"x", "")
    check(socket.getaddrinfo("localhost", 80), "localhost has no address")
    check(socket.gethostname() == "sandbox", socket.gethostname())


@works
def sockets_in_folders_answer():
    path = f"{HOST_FOLDER}/socket-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        connect(socket.AF_UNIX, path)
    os.unlink(path)


@works
def files_are_moved_and_linked():
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        os.makedirs(f"{folder}/a/b")
        open(f"{folder}/a/x", "w").write("x")
        os.rename(f"{folder}/a/x", f"{folder}/a/b/y")
        os.link(f"{folder}/a/b/y", f"{folder}/z")
        os.symlink("z", f"{folder}/link")
        os.chmod(f"{folder}/z", 0o755)
        os.mkfifo(f"{folder}/pipe")
        check(open(f"{folder}/link").read() == "x", "")


@works
def a_script_in_the_session_runs():
    path = f"{HOME}/script-{os.getpid()}"
    with open(path, "w") as file:
        file.write("#!/bin/sh\necho from a script\n")
    os.chmod(path, 0o700)
    check(subprocess.check_output([path], text=True) == "from a script\n", "")
    os.unlink(path)


@works
def the_machine_is_described():
    check(os.cpu_count() >= 1, "")
    check(len(os.urandom(16)) == 16, "")
    check(os.sysconf("SC_PHYS_PAGES") > 0, "")
    check("MemTotal" in open("/proc/meminfo").read(), "")
    check("processor" in open("/proc/cpuinfo").read() or platform.machine() != "x86_64", "")
    check(os.listdir("/sys/devices/system/cpu"), "")
    check(time.localtime().tm_year > 2000, "")
    check(os.path.expanduser("~") == HOME and os.getcwd() == HOME, os.getcwd())
    import pwd

    check(pwd.getpwuid(os.getuid()).pw_name == "user", "")


@works
def a_large_array_is_allocated():
    check(len(bytearray(100 << 20)) == 100 << 20, "")


@works
def descriptors_are_polled():
    reader, writer = os.pipe()
    poll = select.epoll()
    poll.register(reader, select.EPOLLIN)
    os.write(writer, b"x")
    check(poll.poll(1) == [(reader, select.EPOLLIN)], "")


# --- Test runner -----------------------------------------------------------------------------------------------------


def run(name):
    """Run a function in a process of its own; return whether it passed, and a description of the result."""
    kind, function, errnos, killed_by = FUNCTIONS[name]
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        CONTEXT["result_pipe"] = writer
        signal.alarm(TIMEOUT_SECONDS)
        try:
            function()
            result = {"passed": kind != "attack", "detail": "it succeeded"}
        except OSError as error:
            passed = kind == "attack" and error.errno in errnos
            result = {"passed": passed, "detail": f"{errno.errorcode.get(error.errno, error.errno)}: {error}"}
        except BaseException as error:
            result = {"passed": False, "detail": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(result)[:4000].encode())
        os._exit(0)
    os.close(writer)
    text = b"".join(iter(lambda: os.read(reader, 65536), b""))
    os.close(reader)
    _, status = os.waitpid(process, 0)
    if text:
        return json.loads(text)
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return {"passed": killed_by is not None and ended_by == killed_by, "detail": f"ended by signal {ended_by}"}


def main(context):
    CONTEXT.update(context)
    # Functions that inspect a clean sandbox are defined before functions that change it.
    for name in FUNCTIONS:
        if name in context["skip"]:
            continue
        print(json.dumps({"name": name, **run(name)}), flush=True)
    print(json.dumps({"name": "end", "passed": True, "detail": ""}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
