//! Tests that translated legacy exceptions behave as the original instructions.

use wasmtime::{Extern, FuncType, Store, Tag, TagType, ValType};

use super::super::Options;
use super::{Guest, engine, instantiate, translated};

/// Two tags, and a function that throws according to its argument: 0 nothing, 1 `$number` (with 10), else `$other`.
const THROWER: &str = r"
  (tag $number (param i32)) (tag $other)
  (func $throw (param i32)
    (if (i32.eq (local.get 0) (i32.const 1)) (then (throw $number (i32.const 10))))
    (if (local.get 0) (then (throw $other))))";

fn guest(functions: &str) -> Guest {
    Guest::new(&format!("(module {THROWER} {functions})"))
}

#[test]
fn a_handler_gets_the_values_of_its_tag() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try (result i32)
               (call $throw (local.get 0))
               i32.const 1
             catch $number
               i32.const 5
               i32.add
             end)"#,
    );
    assert_eq!(guest.call("f", 0), Ok(1));
    assert_eq!(guest.call("f", 1), Ok(15));
    assert_eq!(guest.call::<_, i32>("f", 2), Err("thrown"));
}

#[test]
fn the_first_handler_that_fits_is_chosen() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try (result i32)
               (call $throw (local.get 0))
               i32.const 1
             catch $other
               i32.const 2
             catch $number
             catch_all
               i32.const 3
             end)
           (func (export "all") (param i32) (result i32)
             try (result i32)
               (call $throw (local.get 0))
               i32.const 1
             catch $other
               i32.const 2
             catch_all
               i32.const 3
             end)"#,
    );
    assert_eq!([0, 1, 2].map(|which| guest.call("f", which)), [Ok(1), Ok(10), Ok(2)]);
    assert_eq!([0, 1, 2].map(|which| guest.call("all", which)), [Ok(1), Ok(3), Ok(2)]);
}

#[test]
fn handler_is_not_guarded_by_its_own_try() {
    let mut guest = guest(
        r#"(func (export "f") (result i32)
             try (result i32)
               try (result i32)
                 (throw $other)
               catch $other
                 (throw $number (i32.const 4))
               catch $number
                 drop
                 i32.const 1
               end
             catch $number
               i32.const 100
               i32.add
             end)"#,
    );
    assert_eq!(guest.call("f", ()), Ok(104));
}

#[test]
fn a_try_without_handlers_lets_everything_pass() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try (result i32)
               (call $throw (local.get 0))
               i32.const 1
             end)"#,
    );
    assert_eq!(guest.call("f", 0), Ok(1));
    assert_eq!(guest.call::<_, i32>("f", 1), Err("thrown"));
}

#[test]
fn rethrow_throws_the_exception_of_the_named_handler() {
    // The inner handler caught `$other`, the outer one `$number`; each is thrown again in turn.
    let mut guest = guest(
        r#"(func (export "f") (param $outer i32) (result i32)
             try (result i32)
               try (result i32)
                 (throw $number (i32.const 7))
               catch $number
                 drop
                 try (result i32)
                   (throw $other)
                 catch_all
                   (if (local.get $outer) (then rethrow 2) (else rethrow 1))
                   unreachable
                 end
               end
             catch $number
             catch $other
               i32.const 1
             end)"#,
    );
    assert_eq!(guest.call("f", 1), Ok(7));
    assert_eq!(guest.call("f", 0), Ok(1));
}

#[test]
fn rethrown_exception_keeps_its_values() {
    let mut guest = guest(
        r#"(global $seen (export "seen") (mut i32) (i32.const 0))
           (func (export "f") (result i32)
             try (result i32)
               try (result i32)
                 (throw $number (i32.const 7))
               catch $number
                 global.set $seen
                 rethrow 0
               end
             catch $number
             end)"#,
    );
    assert_eq!(guest.call("f", ()), Ok(7));
    assert_eq!(guest.global("seen"), 7);
}

#[test]
fn delegate_passes_over_the_tries_between() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try $outermost (result i32)
               try $middle (result i32)
                 try $inner (result i32)
                   try (result i32)
                     (call $throw (local.get 0))
                     i32.const 0
                   delegate $outermost
                 catch_all
                   i32.const 1
                 end
               catch_all
                 i32.const 2
               end
             catch_all
               i32.const 3
             end)"#,
    );
    assert_eq!([0, 1, 2].map(|which| guest.call("f", which)), [Ok(0), Ok(3), Ok(3)]);
}

#[test]
fn delegate_to_the_caller_passes_over_every_try() {
    let mut guest = guest(
        r#"(func $f (param i32) (result i32)
             try (result i32)
               try (result i32)
                 (call $throw (local.get 0))
                 (if (i32.eqz (local.get 0)) (then (return (i32.const 5))))
                 i32.const 0
               delegate 1
             catch_all
               i32.const 1
             end)
           (func (export "f") (param i32) (result i32)
             try (result i32) (call $f (local.get 0)) catch_all i32.const 9 end)"#,
    );
    assert_eq!([0, 1].map(|which| guest.call("f", which)), [Ok(5), Ok(9)]);
}

#[test]
fn delegate_out_of_a_handler_skips_the_handlers_own_try() {
    let mut guest = guest(
        r#"(func (export "f") (result i32)
             try (result i32)
               try $mine (result i32)
                 (throw $other)
               catch_all
                 try (result i32)
                   (throw $number (i32.const 8))
                 delegate $mine
               end
             catch $number
             end)"#,
    );
    assert_eq!(guest.call("f", ()), Ok(8));
}

#[test]
fn delegate_chains_through_a_try_that_delegates() {
    let mut guest = guest(
        r#"(func (export "f") (result i32)
             try $far (result i32)
               try (result i32)
                 try $near (result i32)
                   try (result i32)
                     try (result i32)
                       (throw $number (i32.const 6))
                     delegate $near
                   catch_all
                     i32.const 1
                   end
                 delegate $far
               catch_all
                 i32.const 2
               end
             catch $number
             end)"#,
    );
    assert_eq!(guest.call("f", ()), Ok(6));
}

#[test]
fn branches_out_of_tries_keep_their_targets() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             block $a (result i32)
               block $b
                 block $c
                   try
                     try
                       local.get 0
                       br_table 0 1 $c $b $b
                     delegate 4
                     (br_if $b (i32.eq (local.get 0) (i32.const 0)))
                     unreachable
                   catch $number
                     drop
                     unreachable
                   catch_all
                     (br $a (i32.const 4))
                   end
                   (return (i32.const 1))
                 end
                 (br $a (i32.const 2))
               end
               i32.const 3
             end)"#,
    );
    assert_eq!([0, 1, 2, 3, 4].map(|which| guest.call("f", which)), [Ok(3), Ok(1), Ok(2), Ok(3), Ok(3)]);
}

#[test]
fn a_loop_is_continued_from_within_a_handler() {
    let mut guest = guest(
        r#"(func (export "f") (param $n i32) (result i32) (local $caught i32)
             loop $again
               try
                 (call $throw (i32.and (local.get $n) (i32.const 3)))
               catch_all
                 (local.set $caught (i32.add (local.get $caught) (i32.const 1)))
                 (local.set $n (i32.sub (local.get $n) (i32.const 1)))
                 br $again
               end
               (local.set $n (i32.sub (local.get $n) (i32.const 1)))
               (br_if $again (i32.gt_s (local.get $n) (i32.const 0)))
             end
             local.get $caught)"#,
    );
    assert_eq!(guest.call("f", 8), Ok(6));
}

#[test]
fn a_try_takes_and_gives_several_values() {
    let mut guest = guest(
        r#"(func (export "f") (param i32) (result i32)
             try $outer (result i32)
               i32.const 3
               i32.const 4
               try (param i32 i32) (result i32 i32)
                 try (param i32 i32) (result i32 i32)
                   i32.add
                   (call $throw (local.get 0))
                   i32.const 1
                 delegate $outer
               catch_all
                 i32.const 20
                 i32.const 30
               end
               i32.mul
             catch $number
               i32.const 1000
               i32.add
             end)"#,
    );
    assert_eq!([0, 1].map(|which| guest.call("f", which)), [Ok(7), Ok(1010)]);
}

#[test]
fn a_tag_may_carry_several_values() {
    let mut guest = Guest::new(
        r#"(module (tag $pair (param i64 i32))
             (func (export "f") (result i64)
               try (result i64)
                 try (result i64)
                   (throw $pair (i64.const 40) (i32.const 2))
                 catch $pair
                   rethrow 0
                 end
               catch $pair
                 i64.extend_i32_s
                 i64.add
               end))"#,
    );
    assert_eq!(guest.call("f", ()), Ok(42i64));
}

#[test]
fn a_trap_is_not_caught() {
    let mut guest = guest(
        r#"(func (export "f") (result i32)
             try (result i32) unreachable catch_all i32.const 1 end)"#,
    );
    assert_eq!(guest.call::<_, i32>("f", ()), Err("trapped"));
}

#[test]
fn an_exception_crosses_modules_by_an_imported_tag() {
    let engine = engine();
    let mut store = Store::new(&engine, ());
    let tag = Tag::new(&mut store, &TagType::new(FuncType::new(&engine, [ValType::I32], []))).unwrap();
    let thrower = translated(
        r#"(module (import "env" "t" (tag $t (param i32)))
             (func (export "throw") (param i32) (throw $t (local.get 0))))"#,
        &Options::default(),
    );
    let catcher = translated(
        r#"(module (import "env" "t" (tag $t (param i32))) (import "env" "throw" (func $throw (param i32)))
             (func (export "f") (param i32) (result i32)
               try (result i32) (call $throw (local.get 0)) i32.const 0 catch $t end))"#,
        &Options::default(),
    );
    let thrower = instantiate(&mut store, &thrower.wasm, &[Extern::Tag(tag)]);
    let throw = thrower.get_func(&mut store, "throw").unwrap();
    let catcher = instantiate(&mut store, &catcher.wasm, &[Extern::Tag(tag), Extern::Func(throw)]);
    let f = catcher.get_typed_func::<i32, i32>(&mut store, "f").unwrap();
    assert_eq!(f.call(&mut store, 77).unwrap(), 77);
}

#[test]
fn standard_exceptions_work_inside_added_blocks() {
    let text = format!(
        r#"(module {THROWER} (global (export "__stack_pointer") (mut i32) (i32.const 1024))
             (func (export "f") (param i32) (result i32)
               block $handler (result i32)
                 try_table (catch $number $handler)
                   (call $throw (local.get 0))
                 end
                 i32.const 1
               end))"#
    );
    let options = Options { stack_padding: vec![("f".to_owned(), 16)], ..Options::default() };
    let mut guest = Guest::with(&text, &options);
    assert_eq!([0, 1].map(|which| guest.call("f", which)), [Ok(1), Ok(10)]);
    assert_eq!(guest.global("__stack_pointer"), 1024);
}
