//! Tests of loading side modules: dependencies, the search path, initialisation and errors.

use std::sync::atomic::Ordering;

use belljar_emscripten::InstanceError;
use belljar_emscripten::termination::Termination;

use crate::guest::on_guest_thread;
use crate::side_module::{GLOBAL, LOCAL, NOLOAD, guest, library};

/// A library with 11 at `b_data`, and functions that return it and their addresses.
fn provider() -> Vec<u8> {
    library(
        "(mem-info (memory 8 2) (table 1 0))",
        r#"
        (import "env" "note" (func $note (param i32)))
        (import "GOT.func" "b_value" (global $b_value (mut i32)))
        (global (export "b_data") i32 (i32.const 4))
        (data (global.get $base) "\00\00\00\00\0b\00\00\00")
        (elem (global.get $table) $value)
        (func $value (export "b_value") (result i32) global.get $base i32.load offset=4)
        (func (export "b_address") (result i32) global.get $b_value)
        (func (export "b_slot") (result i32) global.get $table)
        (func (export "__wasm_call_ctors") i32.const 2 call $note)"#,
    )
}

/// A library that needs `libb.so`, and sums values from that library, the main module and its own data.
fn consumer() -> Vec<u8> {
    library(
        r#"(mem-info (memory 16 4) (table 0 0)) (needed "libb.so")"#,
        r#"
        (import "env" "b_value" (func $b_value (result i32)))
        (import "env" "main_answer" (func $main_answer (result i32)))
        (import "env" "note" (func $note (param i32)))
        (import "GOT.mem" "b_data" (global $b_data (mut i32)))
        (import "GOT.mem" "main_data" (global $main_data (mut i32)))
        (import "GOT.func" "b_value" (global $b_address (mut i32)))
        (data (i32.add (global.get $base) (i32.const 8)) "\01\00\00\00")
        (func (export "a_sum") (result i32)
          (i32.add (call $b_value)
            (i32.add (call $main_answer)
              (i32.add (i32.load (global.get $main_data))
                (i32.add (i32.load (i32.load (global.get $base)))
                  (i32.load offset=8 (global.get $base)))))))
        (func (export "a_address") (result i32) global.get $b_address)
        (func (export "a_aligned") (result i32) global.get $base i32.const 15 i32.and)
        (func $relocate (export "__wasm_apply_data_relocs")
          (i32.store (global.get $base) (global.get $b_data))
          (call $note (i32.const 1)))
        (func (export "__wasm_call_ctors")
          ;; 11 is there only if data was copied and relocated before this.
          (call $note (i32.eq (i32.load (i32.load (global.get $base))) (i32.const 11)))
          (call $note (i32.const 3)))
        (func $fill (i32.store offset=12 (global.get $base) (i32.const 5)))
        (func (export "a_bss") (result i32) (i32.load offset=12 (global.get $base)))
        (start $fill)"#,
    )
}

#[test]
fn library_links_with_its_dependency_and_the_main_module() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/liba.so", consumer()), ("/lib/libb.so", provider())]);
        let a = guest.open("/lib/liba.so", LOCAL).unwrap();
        assert_eq!(guest.run(a, "a_sum"), 11 + 7 + 42 + 11 + 1);
        assert_eq!(guest.run(a, "a_bss"), 5, "the start function ran");
        assert_eq!(guest.run(a, "a_aligned"), 0);
        // Relocations (1), the constructors of the dependency (2), and its own constructors (1: the data was ready, 3).
        let notes = guest.symbol(0, "notes").unwrap();
        assert_eq!(guest.word(notes), 1213);
        // A handle also finds symbols of dependencies.
        assert_eq!(guest.run(a, "b_value"), 11);
    });
}

#[test]
fn a_function_has_one_address_in_all_modules() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/liba.so", consumer()), ("/lib/libb.so", provider())]);
        let a = guest.open("/lib/liba.so", LOCAL).unwrap();
        let b = guest.open("/lib/libb.so", LOCAL).unwrap();
        let address = guest.symbol(b, "b_value").unwrap();
        assert_eq!(guest.run(a, "a_address") as u32, address);
        assert_eq!(guest.run(b, "b_address") as u32, address);
        assert_eq!(guest.run(b, "b_slot") as u32, address, "its own segment put it there");
        assert_eq!(guest.symbol(a, "b_value"), Ok(address));
    });
}

#[test]
fn host_function_has_one_callable_address() {
    on_guest_thread(|| {
        let clock = library(
            "(mem-info (memory 0 0) (table 0 0))",
            r#"
            (import "GOT.func" "emscripten_date_now" (global $now (mut i32)))
            (func (export "address") (result i32) global.get $now)"#,
        );
        let mut guest = guest(&[("/lib/x.so", clock.clone()), ("/lib/y.so", clock)]);
        let x = guest.open("/lib/x.so", LOCAL).unwrap();
        let y = guest.open("/lib/y.so", LOCAL).unwrap();
        let address = guest.symbol(0, "emscripten_date_now").unwrap();
        assert_eq!(guest.run(x, "address") as u32, address);
        assert_eq!(guest.run(y, "address") as u32, address);
        assert!(guest.call::<f64>("call_double", address) > 1e12);
    });
}

#[test]
fn a_path_is_loaded_once() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/libb.so", provider())]);
        let first = guest.open("/lib/libb.so", LOCAL).unwrap();
        let again = guest.open("/home/../lib/./libb.so", LOCAL).unwrap();
        let by_name = guest.open("libb.so", NOLOAD).unwrap();
        let address = guest.symbol(first, "b_value");
        assert_eq!(guest.symbol(again, "b_value"), address);
        assert_eq!(guest.symbol(by_name, "b_value"), address);
        assert_eq!(guest.compiler.compiled.load(Ordering::Relaxed), 1);
        let notes = guest.symbol(0, "notes").unwrap();
        assert_eq!(guest.word(notes), 2, "its constructor ran once");
    });
}

#[test]
fn noload_refuses_libraries_that_are_not_loaded() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/libb.so", provider())]);
        assert_eq!(guest.open("/lib/libb.so", NOLOAD), Err("'/lib/libb.so' is not loaded".into()));
    });
}

#[test]
fn libraries_that_need_each_other_are_loaded_once_each() {
    on_guest_thread(|| {
        let half = |own: &str, other: &str, add: i32| {
            let body = format!(
                r#"
                (import "env" "{other}" (func $other (param i32) (result i32)))
                (import "GOT.func" "{other}" (global $address (mut i32)))
                (func (export "{own}") (param i32) (result i32)
                  (if (result i32) (i32.eqz (local.get 0))
                    (then (i32.const 0))
                    (else (i32.add (i32.const {add}) (call $other (i32.sub (local.get 0) (i32.const 1)))))))
                (func (export "{own}_start") (result i32)
                  (call_indirect (param i32) (result i32) (i32.const 4) (global.get $address)))"#
            );
            library(&format!(r#"(mem-info (memory 0 0) (table 0 0)) (needed "{other}.so")"#), &body)
        };
        let mut guest =
            guest(&[("/lib/ping.so", half("ping", "pong", 1)), ("/lib/pong.so", half("pong", "ping", 100))]);
        let ping = guest.open("/lib/ping.so", LOCAL).unwrap();
        // Four calls, beginning with pong.
        assert_eq!(guest.run(ping, "ping_start"), 202);
        assert_eq!(guest.run(ping, "pong_start"), 202);
        assert_eq!(guest.compiler.compiled.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn dependencies_are_found_by_run_path_and_library_directory() {
    on_guest_thread(|| {
        let needs = |sections: &str| {
            let body = r#"(import "env" "b_value" (func $b_value (result i32)))
                (func (export "value") (result i32) call $b_value)"#;
            library(&format!("(mem-info (memory 0 0) (table 0 0)) (needed \"libb.so\") {sections}"), body)
        };
        let mut guest = guest(&[
            ("/site/package/x.so", needs(r#"(runtime-path "/nowhere" "$ORIGIN/../package.libs")"#)),
            ("/site/package.libs/libb.so", provider()),
            ("/site/beside/y.so", needs("")),
            ("/site/beside/libb.so", provider()),
            ("/site/alone/z.so", needs("")),
        ]);
        for path in ["/site/package/x.so", "/site/beside/y.so"] {
            let handle = guest.open(path, LOCAL).unwrap();
            assert_eq!(guest.run(handle, "value"), 11);
        }
        assert_eq!(
            guest.open("/site/alone/z.so", LOCAL),
            Err("library 'libb.so' not found in /site/alone:/usr/lib:/lib".into())
        );
    });
}

#[test]
fn a_library_that_the_guest_wrote_or_changed_is_refused() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/libb.so", provider())]);
        let files = &mut guest.instance.host_mut().files;
        files.write_file("/home/evil.so", &provider()).unwrap();
        files.write_file("/lib/libb.so", &provider()).unwrap();
        for path in ["/home/evil.so", "/lib/libb.so", "evil.so"] {
            let error = guest.open(path, LOCAL).unwrap_err();
            if path.starts_with('/') {
                assert_eq!(
                    error,
                    format!(
                        "'{path}' was not installed by the host: only libraries of installed packages can be loaded"
                    )
                );
            }
        }
        assert_eq!(guest.compiler.compiled.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn library_bytes_in_guest_memory_are_not_used() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/libb.so", provider())]);
        let bytes = guest.put(b"forged");
        let mut dso = vec![0; 28];
        dso.extend(bytes.to_le_bytes());
        dso.extend(6u32.to_le_bytes());
        let mut absent = dso.clone();
        dso.extend(b"/lib/libb.so\0");
        absent.extend(b"/lib/absent.so\0");
        let (handle, absent) = (guest.put(&dso), guest.put(&absent));
        assert_eq!(guest.call::<i32>("open", handle), 1);
        assert_eq!(guest.run(handle, "b_value"), 11);
        assert_eq!(guest.call::<i32>("open", absent), 0);
    });
}

#[test]
fn loading_a_text_file_reports_that_it_is_not_a_library() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/text.so", b"%s is no wasm".to_vec())]);
        let error = guest.open("/lib/text.so", LOCAL).unwrap_err();
        assert!(error.starts_with("failed to load '/lib/text.so': not a side module"), "{error}");
    });
}

#[test]
fn an_undefined_function_is_an_error_when_it_is_called() {
    on_guest_thread(|| {
        let careless = library(
            "(mem-info (memory 0 0) (table 0 0))",
            r#"
            (import "env" "nowhere" (func $nowhere (param f64) (result i32)))
            (func (export "fine") (result i32) i32.const 1)
            (func (export "bad") (result i32) f64.const 0 call $nowhere)"#,
        );
        let mut guest = guest(&[("/lib/careless.so", careless)]);
        let handle = guest.open("/lib/careless.so", LOCAL).unwrap();
        assert_eq!(guest.run(handle, "fine"), 1);
        let bad = guest.symbol(handle, "bad").unwrap();
        let expected = Termination::Undefined { symbol: "nowhere".into(), library: "/lib/careless.so".into() };
        match guest.try_call::<i32>("call", bad) {
            Err(InstanceError::Terminated(termination)) => assert_eq!(termination, expected),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn signature_mismatch_error_names_the_function() {
    on_guest_thread(|| {
        let wrong =
            library("(mem-info (memory 0 0) (table 0 0))", r#"(import "env" "main_answer" (func (param i64)))"#);
        let mut guest = guest(&[("/lib/wrong.so", wrong)]);
        let error = guest.open("/lib/wrong.so", LOCAL).unwrap_err();
        assert!(error.contains("'/lib/wrong.so' imports 'main_answer' with another type"), "{error}");
    });
}

#[test]
fn failed_load_has_no_effect_and_can_be_retried() {
    on_guest_thread(|| {
        let wants = library(
            r#"(mem-info (memory 0 0) (table 0 0)) (needed "libb.so")"#,
            r#"
            (import "GOT.mem" "missing" (global $missing (mut i32)))
            (func (export "value") (result i32) global.get $missing i32.load)"#,
        );
        let has = library(
            "(mem-info (memory 4 2) (table 0 0))",
            r#"(global (export "missing") i32 (i32.const 0)) (data (global.get $base) "\63\00\00\00")"#,
        );
        let files = [("/lib/wants.so", wants), ("/lib/has.so", has), ("/lib/libb.so", provider())];
        let mut guest = guest(&files);
        let undefined = Err("undefined symbol 'missing' required by '/lib/wants.so'".to_owned());
        assert_eq!(guest.open("/lib/wants.so", GLOBAL), undefined);
        assert_eq!(guest.open("/lib/libb.so", NOLOAD), Err("'/lib/libb.so' is not loaded".into()));
        let notes = guest.symbol(0, "notes").unwrap();
        assert_eq!(guest.word(notes), 0, "no constructor ran");

        guest.open("/lib/has.so", GLOBAL).unwrap();
        let wants = guest.open("/lib/wants.so", LOCAL).unwrap();
        assert_eq!(guest.run(wants, "value"), 99);
    });
}

#[test]
fn exception_in_a_constructor_propagates_and_unloads_the_library() {
    on_guest_thread(|| {
        let throws = library(
            "(mem-info (memory 0 0) (table 0 0))",
            r#"
            (import "env" "__cpp_exception" (tag $cpp (param i32)))
            (import "env" "note" (func $note (param i32)))
            (func (export "__wasm_call_ctors") i32.const 4 call $note i32.const 77 throw $cpp)"#,
        );
        let mut guest = guest(&[("/lib/throws.so", throws)]);
        let mut dso = vec![0; 36];
        dso.extend(b"/lib/throws.so\0");
        let handle = guest.put(&dso);
        assert_eq!(guest.call::<i32>("open_and_catch", handle), 77);
        assert_eq!(guest.call::<i32>("open_and_catch", handle), 77);
        let notes = guest.symbol(0, "notes").unwrap();
        assert_eq!(guest.word(notes), 44, "the second attempt was a new one");
        assert_eq!(guest.open("/lib/throws.so", NOLOAD), Err("'/lib/throws.so' is not loaded".into()));
    });
}

#[test]
fn exceptions_and_longjmps_cross_modules() {
    on_guest_thread(|| {
        let thrower = library(
            "(mem-info (memory 0 0) (table 0 0))",
            r#"
            (import "env" "__cpp_exception" (tag $cpp (param i32)))
            (import "env" "__c_longjmp" (tag $longjmp (param i32)))
            (func (export "throw_cpp") (result i32) i32.const 5 throw $cpp)
            (func (export "throw_longjmp") (result i32) i32.const 6 throw $longjmp)"#,
        );
        let catcher = library(
            r#"(mem-info (memory 0 0) (table 0 0)) (needed "thrower.so")"#,
            r#"
            (import "env" "__cpp_exception" (tag $cpp (param i32)))
            (import "env" "throw_cpp" (func $throw_cpp (result i32)))
            (import "env" "throw_longjmp" (func $throw_longjmp (result i32)))
            (func (export "catch_here") (result i32)
              try (result i32) call $throw_cpp catch $cpp i32.const 100 i32.add end)
            (func (export "let_through") (result i32)
              try (result i32) call $throw_longjmp catch $cpp i32.const 100 i32.add end)"#,
        );
        let mut guest = guest(&[("/lib/thrower.so", thrower), ("/lib/catcher.so", catcher)]);
        let handle = guest.open("/lib/catcher.so", LOCAL).unwrap();
        assert_eq!(guest.run(handle, "catch_here"), 105);
        for (name, caught) in [("throw_cpp", 1005), ("throw_longjmp", 2006), ("let_through", 2006)] {
            let function = guest.symbol(handle, name).unwrap();
            assert_eq!(guest.call::<i32>("call_and_catch", function), caught, "{name}");
        }
    });
}

#[test]
fn thread_local_symbols_are_relative_to_their_base() {
    on_guest_thread(|| {
        let local = library(
            r#"(mem-info (memory 16 2) (table 0 0)) (export-info "variable" tls)"#,
            r#"
            (global (export "__tls_base") i32 (i32.add (global.get $base) (i32.const 8)))
            (global (export "variable") i32 (i32.const 4))
            (data (i32.add (global.get $base) (i32.const 12)) "\21\00\00\00")
            (func (export "base") (result i32) global.get $base)"#,
        );
        let mut guest = guest(&[("/lib/local.so", local)]);
        let handle = guest.open("/lib/local.so", LOCAL).unwrap();
        let base = guest.run(handle, "base") as u32;
        let address = guest.symbol(handle, "variable").unwrap();
        assert_eq!(address, base + 12);
        assert_eq!(guest.word(address), 33);
    });
}

#[test]
fn dlsym_error_names_the_missing_symbol() {
    on_guest_thread(|| {
        let mut guest = guest(&[("/lib/libb.so", provider())]);
        let b = guest.open("/lib/libb.so", LOCAL).unwrap();
        assert_eq!(guest.symbol(b, "100%s"), Err("unknown symbol '100%%s' in '/lib/libb.so'".into()));
        assert!(guest.symbol(b, "__wasm_call_ctors").is_err());
        assert_eq!(guest.symbol(0, "b_value"), Err("unknown symbol 'b_value' in '__main__'".into()));
        assert_eq!(guest.symbol(64, "b_value"), Err("invalid library handle 0x40".into()));
        assert_eq!(guest.call::<i32>("symbol", (b, u32::MAX)), 0);
        assert_eq!(guest.call::<i32>("open", u32::MAX - 8), 0);
    });
}
