//! Tests of inlining: a function behaves the same when inlined.

use wasmparser::{Operator, Parser, Payload};

use super::super::Options;
use super::Guest;

fn inlining() -> Options {
    Options { inline: 200, ..Options::default() }
}

/// Returns the number of calls in each function.
fn calls(wasm: &[u8]) -> Vec<usize> {
    let mut calls = vec![];
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CodeSectionEntry(body) = payload.unwrap() else { continue };
        let operators = body.get_operators_reader().unwrap().into_iter();
        calls.push(operators.filter(|operator| matches!(operator, Ok(Operator::Call { .. }))).count());
    }
    calls
}

#[test]
fn inlined_function_receives_arguments_and_returns_results() {
    let text = r#"(module (memory 1)
      (func $minus (param i32 i32) (result i32) (i32.sub (local.get 0) (local.get 1)))
      (func $both (param i32 i64) (result i64 i32) (local.get 1) (local.get 0))
      (func (export "f") (param i32) (result i32) (local i64)
        (call $minus (local.get 0) (i32.const 3))
        (call $both (i32.const 5) (i64.const 70))
        drop i32.wrap_i64 i32.add))"#;
    let mut guest = Guest::with(text, &inlining());
    assert_eq!(calls(&guest.translated.wasm), [0, 0, 0]);
    assert_eq!(guest.call("f", 10), Ok(77));
}

#[test]
fn locals_of_inlined_functions_start_as_zero() {
    let text = r#"(module (memory 1)
      (func $next (result i32) (local $n i32)
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (local.get $n))
      (func (export "f") (result i32) (local $left i32) (local $sum i32)
        (local.set $left (i32.const 4))
        (loop
          (local.set $sum (i32.add (local.get $sum) (call $next)))
          (local.set $left (i32.sub (local.get $left) (i32.const 1)))
          (br_if 0 (local.get $left)))
        (local.get $sum)))"#;
    let mut guest = Guest::with(text, &inlining());
    assert_eq!(calls(&guest.translated.wasm), [0, 0]);
    assert_eq!(guest.call("f", ()), Ok(4));
}

#[test]
fn return_in_an_inlined_function_does_not_leave_the_caller() {
    let text = r#"(module (memory 1)
      (func $clamp (param i32) (result i32)
        (block
          (br_if 0 (i32.lt_s (local.get 0) (i32.const 10)))
          (return (i32.const 10)))
        (if (i32.lt_s (local.get 0) (i32.const 0)) (then (br 1 (i32.const 0))))
        (local.get 0))
      (func $twice (param i32) (result i32) (i32.mul (call $clamp (local.get 0)) (i32.const 2)))
      (func (export "f") (param i32) (result i32) (i32.add (call $twice (local.get 0)) (i32.const 1))))"#;
    let mut guest = Guest::with(text, &inlining());
    assert_eq!(calls(&guest.translated.wasm), [0, 0, 0]);
    for (argument, result) in [(-5, 1), (4, 9), (400, 21)] {
        assert_eq!(guest.call("f", argument), Ok(result));
    }
}

#[test]
fn recursion_stays_a_call() {
    let text = r#"(module (memory 1)
      (func $even (export "even") (param i32) (result i32)
        (if (result i32) (local.get 0)
          (then (call $odd (i32.sub (local.get 0) (i32.const 1))))
          (else (i32.const 1))))
      (func $odd (param i32) (result i32)
        (if (result i32) (local.get 0)
          (then (call $even (i32.sub (local.get 0) (i32.const 1))))
          (else (i32.const 0)))))"#;
    let mut guest = Guest::with(text, &inlining());
    assert_eq!(calls(&guest.translated.wasm), [1, 1]);
    assert_eq!((guest.call("even", 101), guest.call("even", 100)), (Ok(0), Ok(1)));
}

#[test]
fn exception_from_an_inlined_function_is_caught_by_the_caller() {
    let text = r#"(module (memory 1) (tag $t (param i32))
      (func $thrower (param i32) (throw $t (i32.add (local.get 0) (i32.const 1))))
      (func (export "f") (param i32) (result i32)
        try (result i32)
          (call $thrower (local.get 0)) (i32.const 0)
        catch $t
        end))"#;
    let mut guest = Guest::with(text, &inlining());
    assert_eq!(calls(&guest.translated.wasm), [0, 0]);
    assert_eq!(guest.call("f", 41), Ok(42));
}

#[test]
fn large_functions_and_growing_callers_are_not_inlined() {
    let large = "(drop (i32.const 1000000))".repeat(100);
    let many = "(call $small)".repeat(500);
    let text = format!(
        r#"(module (memory 1)
          (func $large {large})
          (func $small {})
          (func (export "f") (call $large))
          (func (export "g") {many}))"#,
        "(drop (i32.const 1000000))".repeat(20)
    );
    let guest = Guest::with(&text, &inlining());
    let calls = calls(&guest.translated.wasm);
    assert_eq!(calls[2], 1);
    assert!((400..500).contains(&calls[3]), "{calls:?}");
}

#[test]
fn inlining_is_off_by_default() {
    let guest = Guest::new(r#"(module (func $f) (func (export "g") (call $f)))"#);
    assert_eq!(calls(&guest.translated.wasm), [0, 1]);
}
