//! A filter that lets the calls of a list through, whatever their arguments, and nothing else: by binary search.
//!
//! `seccompiler` compares a call with one number after the other, three instructions each. Making machine code of a
//! thousand of them took the kernel a tenth of a sandbox's start; here are as many as the list has gaps, times two.

use libc::c_long;
use seccompiler::{BpfProgram, sock_filter};

// Where `struct seccomp_data` has what a filter looks at: see seccomp(2).
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// `AUDIT_ARCH_…` of `linux/audit.h`: the machine's number in ELF, 64 bits, little-endian.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 62 | 0x8000_0000 | 0x4000_0000;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 183 | 0x8000_0000 | 0x4000_0000;

/// A program that answers [`Allow`](libc::SECCOMP_RET_ALLOW) to each of `calls`, `errno` to all others, and kills who
/// calls by the numbers of another architecture. `None` if the list has more gaps than jumps can cross.
pub(super) fn program(calls: impl IntoIterator<Item = c_long>, errno: u16) -> Option<BpfProgram> {
    let mut calls: Vec<u32> = calls.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
    calls.sort_unstable();
    calls.dedup();
    // Runs of numbers that have one answer, by their first.
    let mut runs: Vec<(u32, bool)> = Vec::new();
    for call in calls {
        // What is not allowed ended with the one before: that goes on to be allowed.
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
        load(ARCHITECTURE_AT),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        answer(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
    ];
    program.extend(search(&runs, refused)?);
    Some(program)
}

/// Finds the run that a number is in.
fn search(runs: &[(u32, bool)], refused: u32) -> Option<BpfProgram> {
    if let [(_, allowed)] = runs {
        return Some(vec![answer(if *allowed { libc::SECCOMP_RET_ALLOW } else { refused })]);
    }
    let (below, above) = runs.split_at(runs.len() / 2);
    let (middle, _) = above.first()?;
    let below = search(below, refused)?;
    let mut program = vec![jump(libc::BPF_JGE, *middle, u8::try_from(below.len()).ok()?, 0)];
    program.extend(below);
    program.extend(search(above, refused)?);
    Some(program)
}

fn load(at: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, jt: 0, jf: 0, k: at }
}

/// Over `yes` instructions if what was loaded stands so to `value`, over `no` if not.
fn jump(comparison: u32, value: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | comparison | libc::BPF_K) as u16, jt: yes, jf: no, k: value }
}

fn answer(value: u32) -> sock_filter {
    sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would do.
    fn run(program: &[sock_filter], architecture: u32, number: u32) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let code = u32::from(code);
            let goes_on = match code & !libc::BPF_K {
                _ if code == libc::BPF_RET | libc::BPF_K => return k,
                _ if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = if k == NUMBER_AT { number } else { architecture };
                    continue;
                }
                _ if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => loaded == k,
                _ if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => loaded >= k,
                other => panic!("instruction {other}"),
            };
            at += usize::from(if goes_on { jt } else { jf });
        }
    }

    const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    fn check(calls: &[c_long]) {
        let program = program(calls.iter().copied(), libc::ENOSYS as u16).unwrap();
        // x32's begin at 1 << 30.
        let numbers = (0..2048).chain((1 << 30)..(1 << 30) + 2048).chain([u32::MAX]);
        for number in numbers {
            let expected = if calls.contains(&c_long::from(number)) { libc::SECCOMP_RET_ALLOW } else { REFUSED };
            assert_eq!(run(&program, ARCHITECTURE, number), expected, "{number} of {calls:?}");
        }
        assert_eq!(run(&program, ARCHITECTURE ^ 1, 0), libc::SECCOMP_RET_KILL_PROCESS);
    }

    #[test]
    fn what_is_listed_is_allowed_and_nothing_else() {
        for calls in [&[][..], &[0], &[1], &[0, 1, 2], &[5, 3, 3, 4, 9], &[0, 2, 4, 6, 8, 10, 2047]] {
            check(calls);
        }
        check(&super::super::seccomp::allowed().collect::<Vec<_>>());
    }

    #[test]
    fn a_list_with_too_many_gaps_is_refused() {
        assert!(program((0..2000).map(|number| number * 2), 1).is_none());
    }

    #[test]
    fn a_number_that_cannot_be_is_refused() {
        assert!(program([-1], 1).is_none() && program([c_long::from(u32::MAX)], 1).is_none());
    }
}
