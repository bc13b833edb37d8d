//! Tests of libraries in snapshots.

use std::sync::atomic::Ordering;

use crate::guest::on_guest_thread;
use crate::side_module::{GLOBAL, LOCAL, guest, library};

/// A library that counts in its own memory, and imports addresses of the main module and the host.
fn counter() -> Vec<u8> {
    library(
        r#"(mem-info (memory 8 2) (table 1 0))"#,
        r#"
        (import "env" "note" (func $note (param i32)))
        (import "env" "count" (func $through_import (result i32)))
        (import "GOT.mem" "main_data" (global $main_data (mut i32)))
        (import "GOT.func" "emscripten_date_now" (global $now (mut i32)))
        (elem (global.get $table) $count)
        (func $count (export "count") (result i32)
          (i32.store (global.get $base) (i32.add (i32.load (global.get $base)) (i32.const 1)))
          (i32.load (global.get $base)))
        (func (export "count_through_import") (result i32) call $through_import)
        (func (export "main_data_here") (result i32) global.get $main_data i32.load)
        (func (export "clock_works") (result i32)
          (f64.gt (call_indirect (result f64) (global.get $now)) (f64.const 1e12)))
        (func (export "__wasm_apply_data_relocs") i32.const 1 call $note)
        (func (export "__wasm_call_ctors") i32.const 2 call $note)"#,
    )
}

/// A library that uses the counter, on which it depends.
fn user() -> Vec<u8> {
    library(
        r#"(mem-info (memory 0 0) (table 0 0)) (needed "counter.so")"#,
        r#"
        (import "env" "count" (func $count (result i32)))
        (func (export "count_twice") (result i32) call $count drop call $count)"#,
    )
}

#[test]
fn copy_has_the_libraries_of_its_original() {
    on_guest_thread(|| {
        let mut original = guest(&[("/lib/counter.so", counter()), ("/lib/user.so", user())]);
        let handle = original.open("/lib/user.so", LOCAL).unwrap();
        assert_eq!(original.run(handle, "count_twice"), 2);
        let count = original.symbol(handle, "count").unwrap();
        let clock = original.symbol(0, "emscripten_date_now").unwrap();
        let notes = original.symbol(0, "notes").unwrap();

        let mut copy = original.copy().unwrap();
        let mut other = original.copy().unwrap();
        assert_eq!(copy.call::<i32>("call", count), 3, "its memory and table slots are there");
        assert_eq!(copy.run(handle, "count_twice"), 5, "handles work, and imports");
        assert_eq!(copy.run(handle, "count_through_import"), 6);
        assert_eq!(copy.run(handle, "main_data_here"), 42);
        assert_eq!(copy.run(handle, "clock_works"), 1);
        assert!(copy.call::<f64>("call_double", clock) > 1e12);
        assert_eq!(copy.word(notes), 12, "nothing was initialised again");
        assert_eq!(other.run(handle, "count_twice"), 4, "copies have nothing in common");
        assert_eq!(original.run(handle, "count_twice"), 4);
    });
}

#[test]
fn a_copy_loads_further_libraries() {
    on_guest_thread(|| {
        let mut original = guest(&[("/lib/counter.so", counter()), ("/lib/user.so", user())]);
        let counter = original.open("/lib/counter.so", GLOBAL).unwrap();
        original.run(counter, "count");
        let mut copy = original.copy().unwrap();
        let user = copy.open("/lib/user.so", LOCAL).unwrap();
        assert_eq!(copy.run(user, "count_twice"), 3);
        let again = copy.open("/lib/counter.so", LOCAL).unwrap();
        assert_eq!(copy.run(again, "count"), 4);
        let mut copy_of_copy = copy.copy().unwrap();
        assert_eq!(copy_of_copy.run(user, "count_twice"), 6);
    });
}

#[test]
fn copy_has_the_mutable_globals_of_a_library() {
    on_guest_thread(|| {
        // The form in which `wasm-ld` stores addresses of a module's own data: globals that the start function
        // relocates.
        let own = library(
            "(mem-info (memory 8 2) (table 0 0))",
            r#"
            (global $address (mut i32) (i32.const 4))
            (global $wide (mut i64) (i64.const 0))
            (global $real (mut f64) (f64.const 0))
            (data (global.get $base) "\00\00\00\00\2c\00\00\00")
            (func $relocate
              (global.set $address (i32.add (global.get $base) (global.get $address)))
              (global.set $wide (i64.const 0x7000000001))
              (global.set $real (f64.const 2.5)))
            (func (export "value") (result i32) global.get $address i32.load)
            (func (export "rest") (result i32)
              (i32.add (i32.wrap_i64 (i64.shr_u (global.get $wide) (i64.const 32)))
                (i32.trunc_f64_s (f64.mul (global.get $real) (f64.const 100)))))
            (start $relocate)"#,
        );
        let mut original = guest(&[("/lib/own.so", own)]);
        let handle = original.open("/lib/own.so", LOCAL).unwrap();
        assert_eq!(original.run(handle, "value"), 44);
        let mut copy = original.copy().unwrap();
        assert_eq!(copy.run(handle, "value"), 44);
        assert_eq!(copy.run(handle, "rest"), 0x70 + 250);
    });
}

#[test]
fn failed_load_leaves_no_entry_in_the_copy() {
    on_guest_thread(|| {
        let throws = library(
            r#"(mem-info (memory 0 0) (table 0 0))"#,
            r#"
            (import "env" "_dlopen_js" (func $dlopen (param i32) (result i32)))
            (import "env" "__cpp_exception" (tag $cpp (param i32)))
            (func (export "__wasm_call_ctors") i32.const 12288 call $dlopen drop i32.const 1 throw $cpp)"#,
        );
        let mut original = guest(&[("/lib/counter.so", counter()), ("/lib/throws.so", throws)]);
        // The constructor loads a library, which remains, and then throws.
        let mut dso = vec![0; 36];
        dso.extend(b"/lib/counter.so\0");
        original.instance.memory().write(12288, &dso).unwrap();
        dso.truncate(36);
        dso.extend(b"/lib/throws.so\0");
        let throws = original.put(&dso);
        assert_eq!(original.call::<i32>("open_and_catch", throws), 1);
        assert_eq!(original.run(12288, "count"), 1);
        let mut copy = original.copy().unwrap();
        assert_eq!(copy.run(12288, "count"), 2);
        assert_eq!(copy.run(12288, "count_through_import"), 3);
    });
}

#[test]
fn a_snapshot_whose_library_has_changed_is_refused() {
    on_guest_thread(|| {
        let mut original = guest(&[("/lib/counter.so", counter())]);
        original.open("/lib/counter.so", LOCAL).unwrap();
        original.instance.host_mut().files.write_file("/lib/counter.so", b"changed").unwrap();
        let error = original.copy().err().unwrap().to_string();
        assert_eq!(error, "failed to use the snapshot: its library /lib/counter.so is missing");
        assert_eq!(original.compiler.compiled.load(Ordering::Relaxed), 1);
    });
}
