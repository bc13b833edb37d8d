//! Tests of stack padding: it is allocated on entry and released on every normal exit.

use super::super::Options;
use super::Guest;

/// Definitions for all tests. `$note` records how much shadow stack its caller holds.
const SHADOW_STACK: &str = r#"
  (global $sp (export "__stack_pointer") (mut i32) (i32.const 65536))
  (global $held (export "held") (mut i32) (i32.const 0))
  (tag $t)
  (func $note (global.set $held (i32.sub (i32.const 65536) (global.get $sp))))"#;

fn guest(functions: &str) -> Guest {
    let options = Options { stack_padding: vec![("f".to_owned(), 256)], ..Options::default() };
    Guest::with(&format!("(module {SHADOW_STACK} {functions})"), &options)
}

fn held(guest: &mut Guest) -> i32 {
    let held = guest.global("held");
    assert_eq!(guest.global("__stack_pointer"), 65536, "the stack was not given back");
    held
}

#[test]
fn normal_end_releases_padding() {
    let mut guest = guest(r#"(func (export "f") (param i32) (result i32) call $note local.get 0)"#);
    assert_eq!(guest.call("f", 3), Ok(3));
    assert_eq!(held(&mut guest), 256);
}

#[test]
fn return_releases_padding() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             call $note
             loop (if (local.get 0) (then (return (i32.const 1)))) end
             i32.const 2)"#,
    );
    assert_eq!([0, 1].map(|which| guest.call("f", which)), [Ok(2), Ok(1)]);
    assert_eq!(held(&mut guest), 256);
}

#[test]
fn branches_to_the_function_end_release_padding() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32 i32)
             call $note
             i32.const 1
             i32.const 2
             block
               (br_if 1 (i32.const 3) (i32.const 4) (i32.eqz (local.get 0)))
               (br_table 1 1 (i32.const 5) (i32.const 6) (local.get 0))
             end)"#,
    );
    assert_eq!(guest.call("f", 0), Ok((3, 4)));
    assert_eq!(guest.call("f", 1), Ok((5, 6)));
    assert_eq!(held(&mut guest), 256);
}

#[test]
fn tail_call_releases_padding_before_the_call() {
    let mut guest = guest(
        r#"(func $next (param i32) (result i32) call $note local.get 0)
           (func (export "f") (param i32) (result i32) (return_call $next (local.get 0)))"#,
    );
    assert_eq!(guest.call("f", 9), Ok(9));
    assert_eq!(held(&mut guest), 0);
}

#[test]
fn every_level_of_a_recursion_allocates_padding() {
    let mut guest = guest(
        r#"(func $f (export "f") (param i32)
             (if (local.get 0)
               (then (call $f (i32.sub (local.get 0) (i32.const 1))))
               (else call $note)))"#,
    );
    assert_eq!(guest.call("f", 9), Ok(()));
    assert_eq!(held(&mut guest), 2560);
}

#[test]
fn exceptions_caught_in_the_function_keep_padding() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try (result i32)
               try (result i32)
                 (if (local.get 0) (then (throw $t)))
                 i32.const 1
               delegate 1
             catch_all
               i32.const 2
             end
             call $note)"#,
    );
    assert_eq!(guest.call("f", 0), Ok(1));
    assert_eq!(held(&mut guest), 256);
    // A function that catches it restores the stack pointer, as compiled code does.
    assert_eq!(guest.call::<_, i32>("f", 1), Err("thrown"));
    assert_eq!(guest.global("__stack_pointer"), 65536 - 256);
}
