//! Tests of hostile calls.

use super::*;

#[test]
fn arbitrary_arguments_never_crash_the_host() {
    let nasty = [
        0,
        1,
        2,
        3,
        -1,
        -100,
        7,
        512,
        i64::from(PATH),
        262_140,
        262_144,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        i64::MAX,
        i64::MIN,
        0x2000_0000,
    ];
    let mut machine = Machine::new();
    let imports: Vec<(String, String)> = machine
        .linker
        .iter(&mut machine.store)
        .filter(|(_, _, item)| matches!(item, Extern::Func(_)))
        .map(|(module, name, _)| (module.to_owned(), name.to_owned()))
        .collect();
    assert!(imports.len() > 100, "{}", imports.len());
    for (module, name) in imports {
        let Ok(Extern::Func(function)) = machine.linker.get(&mut machine.store, &module, &name) else { continue };
        let count = match ExternType::Func(function.ty(&machine.store)) {
            ExternType::Func(kind) => kind.params().len(),
            _ => 0,
        };
        let mut machine = Machine::new();
        let mut seed = 1_usize;
        for round in 0..400 {
            // A pending signal ends waiting at once.
            machine.store.data().stop.interrupt(2);
            machine.path("/dev/zero");
            let arguments: Vec<i64> = (0..count)
                .map(|at| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let spread = if round < nasty.len() { round + at } else { seed >> 33 };
                    nasty[spread % nasty.len()]
                })
                .collect();
            let result = machine.call(&module, &name, &arguments);
            if let (Ok(Some(result)), true) = (&result, name.starts_with("__syscall_")) {
                assert!((-1000..=i64::from(i32::MAX)).contains(result), "{name}{arguments:?} = {result}");
            }
        }
    }
}

#[test]
fn invalid_buffer_fails_the_call_before_any_transfer() {
    let mut machine = Machine::new();
    machine.files().write_file("f", b"12345678").unwrap();
    let fd = machine.open("f");
    machine.buffers(64, &[(BUFFER, 4), (262_143, 4)]);
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 2, 8]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_read", &[fd, 64, 1, 262_142]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_write", &[fd, 262_140, 1, 8]), Errno::EFAULT.positive());
    assert_eq!(machine.wasi("fd_write", &[fd, 64, 1025, 8]), Errno::EINVAL.positive());
    assert_eq!(machine.wasi("fd_pread", &[fd, 64, 1, -1, 8]), Errno::EINVAL.positive());
    assert_eq!(machine.wasi("fd_seek", &[fd, 0, 1, 16]), 0);
    assert_eq!(machine.memory().read_u64(16), Ok(0));
}

#[test]
fn paths_that_are_not_text_are_refused() {
    let mut machine = Machine::new();
    machine.memory().write(PATH, b"\xff\xfe\0").unwrap();
    assert_eq!(machine.syscall("rmdir", &[i64::from(PATH)]), refused(Errno::EILSEQ));
    machine.memory().slice_mut(PATH, 5000).unwrap().fill(b'/');
    assert_eq!(machine.syscall("rmdir", &[i64::from(PATH)]), refused(Errno::ENAMETOOLONG));
    machine.memory().slice_mut(262_100, 44).unwrap().fill(b'/');
    assert_eq!(machine.syscall("rmdir", &[262_100]), refused(Errno::EFAULT));
}
