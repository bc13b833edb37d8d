//! The BPF encoding of a list of system calls: a seccomp filter that allows the calls of the list, with any arguments,
//! and no others. The list itself is in `seccomp.rs`.
//!
//! The filter is a binary search. `seccompiler` would compare a call with one number after the other, with three
//! instructions each; compiling a thousand instructions took the kernel a tenth of a sandbox's start. This encoding has
//! two instructions for each gap in the list.

use libc::c_long;
use seccompiler::{BpfProgram, sock_filter};

use crate::architecture::AUDIT_ARCH;

// Offsets of fields in `struct seccomp_data`: see seccomp(2).
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;

/// Encodes a filter that allows each of `calls`, fails all others with `errno`, and kills a process that makes a call
/// of another architecture. Returns `None` if the list has more gaps than jumps can cross.
pub(crate) fn encode_allow_list(calls: impl IntoIterator<Item = c_long>, errno: u16) -> Option<BpfProgram> {
    let mut calls: Vec<u32> = calls.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
    calls.sort_unstable();
    calls.dedup();
    // Runs of numbers with the same result, by their first number.
    let mut runs: Vec<(u32, bool)> = Vec::new();
    for call in calls {
        // The call follows an allowed one: drop the refused run that began here, which extends the allowed run.
        if runs.last().is_some_and(|(first, _)| *first == call) {
            runs.pop();
        } else {
            runs.push((call, true));
        }
        runs.push((call.checked_add(1)?, false));
    }
    if runs.first().is_none_or(|(first, _)| *first != 0) {
        runs.insert(0, (0, false));
    }
    let refused = libc::SECCOMP_RET_ERRNO | u32::from(errno);
    let mut program = vec![
        load(ARCHITECTURE_OFFSET),
        jump(libc::BPF_JEQ, AUDIT_ARCH, 1, 0),
        return_value(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_OFFSET),
    ];
    program.extend(search(&runs, refused)?);
    Some(program)
}

/// Encodes the search for the run that a number is in.
fn search(runs: &[(u32, bool)], refused: u32) -> Option<BpfProgram> {
    if let [(_, allowed)] = runs {
        return Some(vec![return_value(if *allowed { libc::SECCOMP_RET_ALLOW } else { refused })]);
    }
    let (below, above) = runs.split_at(runs.len() / 2);
    let (middle, _) = above.first()?;
    let below = search(below, refused)?;
    let mut program = vec![jump(libc::BPF_JGE, *middle, u8::try_from(below.len()).ok()?, 0)];
    program.extend(below);
    program.extend(search(above, refused)?);
    Some(program)
}

fn load(offset: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: offset }
}

/// Skips `if_true` instructions if the comparison of the loaded number with `value` is true, else `if_false`.
fn jump(comparison: u32, value: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: if_true, jf: if_false, k: value }
}

fn return_value(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets `program` as the kernel does.
    fn run(program: &[sock_filter], architecture: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let code = u32::from(code);
            let is_true = match code & !libc::BPF_K {
                _ if code == libc::BPF_RET | libc::BPF_K => return k,
                _ if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = if k == NUMBER_OFFSET { number } else { architecture };
                    continue;
                }
                _ if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => loaded == k,
                _ if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => loaded >= k,
                other => panic!("instruction {other}"),
            };
            at += usize::from(if is_true { jt } else { jf });
        }
    }

    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    fn check(calls: &[c_long]) {
        let program = encode_allow_list(calls.iter().copied(), libc::ENOSYS as u16).unwrap();
        // The numbers of x32 begin at 1 << 30.
        let numbers = (0..2048).chain((1 << 30)..(1 << 30) + 2048).chain([u32::MAX]);
        for number in numbers {
            let expected = if calls.contains(&c_long::from(number)) { libc::SECCOMP_RET_ALLOW } else { REFUSED };
            assert_eq!(run(&program, AUDIT_ARCH, number), expected, "{number} of {calls:?}");
        }
        assert_eq!(run(&program, AUDIT_ARCH ^ 1, 0), libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn only_listed_calls_are_allowed() {
        for calls in [&[][..], &[0], &[1], &[0, 1, 2], &[5, 3, 3, 4, 9], &[0, 2, 4, 6, 8, 10, 2047]] {
            check(calls);
        }
        check(&crate::seccomp::allowed_calls().collect::<Vec<_>>());
    }

    #[test]
    fn list_with_too_many_gaps_is_refused() {
        assert!(encode_allow_list((0..2000).map(|number| number * 2), 1).is_none());
    }

    #[test]
    fn number_out_of_range_is_refused() {
        assert!(encode_allow_list([-1], 1).is_none() && encode_allow_list([c_long::from(u32::MAX)], 1).is_none());
    }
}
