//! Tests of lookup scopes: `RTLD_LOCAL`, `RTLD_GLOBAL`, weak symbols.

use crate::guest::on_guest_thread;
use crate::side_module::{GLOBAL, LOCAL, guest, library};

/// A library that defines `colour`, and functions that return how the library itself resolves it.
fn painter(colour: i32) -> Vec<u8> {
    library(
        "(mem-info (memory 0 0) (table 0 0))",
        &format!(
            r#"
            (import "env" "colour" (func $imported (result i32)))
            (import "GOT.func" "colour" (global $address (mut i32)))
            (func (export "colour") (result i32) i32.const {colour})
            (func (export "by_import") (result i32) call $imported)
            (func (export "by_address") (result i32) global.get $address call_indirect (result i32))"#
        ),
    )
}

/// A library that uses `colour` without defining it.
fn viewer(needed: &str, weak: &str) -> Vec<u8> {
    library(
        &format!("(mem-info (memory 0 0) (table 0 0)) {needed} {weak}"),
        r#"
        (import "GOT.func" "colour" (global $address (mut i32)))
        (func (export "address") (result i32) global.get $address)
        (func (export "view") (result i32) global.get $address call_indirect (result i32))"#,
    )
}

const UNDEFINED: &str = "undefined symbol 'colour' required by '/lib/viewer.so'";

#[test]
fn local_symbols_are_visible_to_dependents_only() {
    on_guest_thread(|| {
        let needs_red = viewer(r#"(needed "red.so")"#, "");
        let mut guest = guest(&[
            ("/lib/red.so", painter(1)),
            ("/lib/green.so", painter(2)),
            ("/lib/viewer.so", viewer("", "")),
            ("/lib/needs-red.so", needs_red),
        ]);
        let red = guest.open("/lib/red.so", LOCAL).unwrap();
        let green = guest.open("/lib/green.so", LOCAL).unwrap();
        for (library, colour) in [(red, 1), (green, 2)] {
            assert_eq!(guest.run(library, "by_import"), colour, "a module that imports what it exports");
            assert_eq!(guest.run(library, "by_address"), colour);
        }
        assert_eq!(guest.open("/lib/viewer.so", LOCAL), Err(UNDEFINED.into()));
        assert!(guest.symbol(0, "colour").is_err());
        let needs_red = guest.open("/lib/needs-red.so", LOCAL).unwrap();
        assert_eq!(guest.run(needs_red, "view"), 1);
    });
}

#[test]
fn first_global_definition_takes_precedence() {
    on_guest_thread(|| {
        let files = [("/lib/red.so", painter(1)), ("/lib/green.so", painter(2)), ("/lib/viewer.so", viewer("", ""))];
        let mut guest = guest(&files);
        guest.open("/lib/red.so", GLOBAL).unwrap();
        let green = guest.open("/lib/green.so", GLOBAL).unwrap();
        assert_eq!(guest.run(green, "by_import"), 1);
        assert_eq!(guest.run(green, "by_address"), 1);
        assert_eq!(guest.run(green, "colour"), 2, "a handle prefers its own");
        assert_eq!(guest.run(0, "colour"), 1);
        let viewer = guest.open("/lib/viewer.so", LOCAL).unwrap();
        assert_eq!(guest.run(viewer, "view"), 1);
    });
}

#[test]
fn local_library_becomes_global_when_reopened_as_global() {
    on_guest_thread(|| {
        let needs_red = viewer(r#"(needed "red.so")"#, "");
        let files = [("/lib/red.so", painter(1)), ("/lib/needs-red.so", needs_red), ("/lib/viewer.so", viewer("", ""))];
        let mut guest = guest(&files);
        guest.open("/lib/needs-red.so", LOCAL).unwrap();
        assert_eq!(guest.open("/lib/viewer.so", LOCAL), Err(UNDEFINED.into()));
        // Its dependencies become global too.
        guest.open("/lib/needs-red.so", GLOBAL).unwrap();
        let viewer = guest.open("/lib/viewer.so", LOCAL).unwrap();
        assert_eq!(guest.run(viewer, "view"), 1);
    });
}

#[test]
fn an_undefined_weak_symbol_is_null() {
    on_guest_thread(|| {
        let weak = r#"(import-info "GOT.func" "colour" binding-weak)"#;
        let mut guest = guest(&[("/lib/viewer.so", viewer("", weak))]);
        let viewer = guest.open("/lib/viewer.so", LOCAL).unwrap();
        assert_eq!(guest.run(viewer, "address"), 0);
    });
}

#[test]
fn a_defined_weak_symbol_is_not_null() {
    on_guest_thread(|| {
        let weak = r#"(import-info "GOT.func" "colour" binding-weak)"#;
        let mut guest = guest(&[("/lib/red.so", painter(1)), ("/lib/viewer.so", viewer("", weak))]);
        guest.open("/lib/red.so", GLOBAL).unwrap();
        let viewer = guest.open("/lib/viewer.so", LOCAL).unwrap();
        assert_eq!(guest.run(viewer, "view"), 1);
    });
}
