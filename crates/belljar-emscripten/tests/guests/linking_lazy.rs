//! Tests of libraries whose functions are compiled when they are called. Each test also runs with a library that is
//! compiled at once, so that both kinds behave alike.

use std::time::Duration;

use belljar_emscripten::InstanceError;
use belljar_emscripten::termination::Termination;
use belljar_emscripten::watchdog::{DeadlineGuard, TimeLimits};

use crate::guest::on_guest_thread;
use crate::side_module::{LOCAL, guest, library};

/// Code without effect that is so long that no two functions with it are compiled together.
fn padding() -> String {
    "nop ".repeat(5000)
}

/// A library whose functions call each other across fragments: directly, by tail call, through the table, with many
/// parameters, and with its own global and table.
fn chain() -> Vec<u8> {
    let padding = padding();
    library(
        "(mem-info (memory 8 2) (table 2 0))",
        &format!(
            r#"
            (import "env" "main_answer" (func $main_answer (result i32)))
            (type $unary (func (param i32) (result i32)))
            (table $own 1 funcref)
            (global $calls (mut i32) (i32.const 0))
            (global $ten i32 (i32.const 10))
            (data (global.get $base) "\05\00\00\00")
            (elem (table 0) (global.get $table) func $double $main_answer)
            (func $double (param i32) (result i32) {padding}
              (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
              (i32.mul (local.get 0) (i32.const 2)))
            (func $many (param i32 i64 f32 f64 i32 i32 i32 i32 i32) (result i32 i64) {padding}
              (i32.add (local.get 0) (local.get 8)) (local.get 1))
            (func $even (param i32) (result i32) {padding}
              (if (i32.eqz (local.get 0)) (then (return (i32.const 1))))
              (return_call $odd (i32.sub (local.get 0) (i32.const 1))))
            (func $odd (param i32) (result i32) {padding}
              (if (i32.eqz (local.get 0)) (then (return (i32.const 0))))
              (return_call $even (i32.sub (local.get 0) (i32.const 1))))
            (func $fibonacci (export "fib") (param i32) (result i32) {padding}
              (if (i32.lt_u (local.get 0) (i32.const 2)) (then (return (local.get 0))))
              (i32.add (call $other_fibonacci (i32.sub (local.get 0) (i32.const 1)))
                (call $other_fibonacci (i32.sub (local.get 0) (i32.const 2)))))
            (func $other_fibonacci (param i32) (result i32) {padding}
              (call $fibonacci (local.get 0)))
            (func (export "direct") (result i32)
              (call $double (i32.add (call $main_answer) (i32.load (global.get $base)))))
            (func (export "indirect") (result i32)
              (i32.add
                (call_indirect (type $unary) (i32.const 4) (global.get $table))
                (call_indirect (result i32) (i32.add (global.get $table) (i32.const 1)))))
            (func (export "parameters") (result i32) (local i64)
              (call $many (i32.const 1) (i64.const 2) (f32.const 0) (f64.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const 40))
              (i32.add (i32.wrap_i64)))
            (func (export "tail") (result i32) (call $even (i32.const 100001)))
            (func (export "recursive") (result i32) (call $fibonacci (i32.const 20)))
            (func (export "calls") (result i32) (i32.mul (global.get $calls) (global.get $ten)))
            (func (export "own_table") (result i32) (table.size $own))"#
        ),
    )
}

#[test]
fn functions_of_different_fragments_call_each_other() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/chain.so", chain())]);
        let chain = guest.open("/lib/chain.so", LOCAL).unwrap();
        // Each function twice: the first call loads it.
        for round in 1..3 {
            assert_eq!(guest.run(chain, "direct"), 24);
            assert_eq!(guest.run(chain, "indirect"), 8 + 7);
            assert_eq!(guest.run(chain, "parameters"), 43);
            assert_eq!(guest.run(chain, "tail"), 0);
            assert_eq!(guest.run(chain, "recursive"), 6765);
            assert_eq!(guest.run(chain, "calls"), 20 * round);
            assert_eq!(guest.run(chain, "own_table"), 1);
        }
        // A copy loads the functions for itself, and has the library's variables.
        let mut copy = guest.copy().unwrap();
        assert_eq!(copy.run(chain, "calls"), 40);
        assert_eq!(copy.run(chain, "indirect"), 15);
        assert_eq!(copy.run(chain, "recursive"), 6765);
        assert_eq!(copy.run(chain, "calls"), 50);
        assert_eq!(guest.run(chain, "calls"), 40);
    });
}

#[test]
fn exceptions_and_traps_cross_fragments() {
    let padding = padding();
    let thrower = library(
        "(mem-info (memory 0 0) (table 0 0))",
        &format!(
            r#"
            (import "env" "__cpp_exception" (tag $cpp (param i32)))
            (func $throw (param i32) (result i32) {padding} (throw $cpp (local.get 0)))
            (func $forward (param i32) (result i32) {padding} (call $throw (local.get 0)))
            (func (export "caught") (result i32)
              try (result i32) (call $forward (i32.const 5)) catch $cpp (i32.add (i32.const 100)) end)
            (func (export "uncaught") (result i32) (call $forward (i32.const 6)))
            (func $divide (param i32) (result i32) {padding} (i32.div_u (i32.const 1) (local.get 0)))
            (func (export "trap") (result i32) (call $divide (i32.const 0)))"#
        ),
    );
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/thrower.so", thrower.clone())]);
        let handle = guest.open("/lib/thrower.so", LOCAL).unwrap();
        assert_eq!(guest.run(handle, "caught"), 105);
        let uncaught = guest.symbol(handle, "uncaught").unwrap();
        assert_eq!(guest.call::<i32>("call_and_catch", uncaught), 1006);
        let trap = guest.symbol(handle, "trap").unwrap();
        let error = guest.try_call::<i32>("call", trap).unwrap_err();
        assert!(matches!(error, InstanceError::Trapped(_)), "{error:?}");
    });
}

#[test]
fn endless_code_in_a_fragment_is_stopped() {
    let padding = padding();
    let endless = library(
        "(mem-info (memory 0 0) (table 0 0))",
        &format!(
            r#"
            (func $spin (result i32) {padding} (loop $again (br $again)) (unreachable))
            (func (export "spin") (result i32) (call $spin))
            (func $bounce (param i32) (result i32) {padding} (return_call $back (local.get 0)))
            (func $back (param i32) (result i32) {padding} (return_call $bounce (local.get 0)))
            (func (export "bounce") (result i32) (call $bounce (i32.const 0)))
            (func $deep (param i32) (result i32) {padding} (i32.add (call $deeper (local.get 0)) (i32.const 1)))
            (func $deeper (param i32) (result i32) {padding} (i32.add (call $deep (local.get 0)) (i32.const 1)))
            (func (export "deep") (result i32) (call $deep (i32.const 0)))"#
        ),
    );
    on_guest_thread(|| {
        for name in ["spin", "bounce"] {
            let mut guest = guest(&[("/lib/endless.so", endless.clone())]);
            let handle = guest.open("/lib/endless.so", LOCAL).unwrap();
            let function = guest.symbol(handle, name).unwrap();
            let limits = TimeLimits { wall: Some(Duration::from_millis(20)), ..TimeLimits::default() };
            let watch = DeadlineGuard::start(&guest.instance.stop_handle(), limits);
            let error = guest.try_call::<i32>("call", function).unwrap_err();
            drop(watch);
            assert!(matches!(error, InstanceError::Terminated(Termination::Stopped)), "{name}: {error:?}");
        }
        let mut guest = guest(&[("/lib/endless.so", endless.clone())]);
        let handle = guest.open("/lib/endless.so", LOCAL).unwrap();
        let deep = guest.symbol(handle, "deep").unwrap();
        let error = guest.try_call::<i32>("call", deep).unwrap_err();
        assert!(matches!(error, InstanceError::StackOverflow), "{error:?}");
    });
}
