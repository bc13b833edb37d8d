//! Tests that modules without a faithful translation are refused without a panic.

use wasmparser::{Validator, WasmFeatures};

use super::super::{Options, TranslateError, translate};

fn refusal_with(text: &str, options: &Options) -> String {
    let wasm = wat::parse_str(text).unwrap();
    translate(&wasm, options).unwrap_err().to_string()
}

#[track_caller]
fn assert_refused(text: &str, because: &str) {
    let refusal = refusal_with(text, &Options::default());
    assert!(refusal.contains(because), "{refusal}");
}

#[test]
fn invalid_module_bytes_are_refused() {
    for bytes in [&b""[..], b"\0asm", b"\x7fELF", b"\0asm\x0d\0\x01\0", b"\0asm\x01\0\0\0\x01"] {
        assert!(matches!(translate(bytes, &Options::default()), Err(TranslateError::Invalid(_))), "{bytes:?}");
    }
}

#[test]
fn invalid_code_is_refused() {
    assert_refused("(module (func (result i32) i64.const 1))", "type mismatch");
}

#[test]
fn unsupported_memories_are_refused() {
    assert_refused("(module (memory 1) (memory 1))", "multiple memories");
    assert_refused("(module (memory i64 1))", "memory64");
    assert_refused("(module (memory 1 2 shared))", "threads");
}

#[test]
fn data_segments_without_a_known_offset_are_refused() {
    assert_refused(r#"(module (memory 1) (data "x"))"#, "data segment 0 cannot be placed: it is passive");
    assert_refused(r#"(module (memory 1) (data (i32.const 65535) "xy"))"#, "beyond the end of memory");
    assert_refused(r#"(module (memory 1) (data (i32.const -1) "xy"))"#, "beyond the end of memory");
    assert_refused(
        r#"(module (import "env" "__memory_base" (global i32)) (memory 1) (data (global.get 0) "x"))"#,
        "not a constant",
    );
    let side = r#"(module (@dylink.0 (mem-info)) (import "env" "memory" (memory 1))"#;
    assert_refused(&format!(r#"{side} (data "x"))"#), "it is passive");
    assert_refused(&format!(r#"{side} (data (i32.const 0) "x"))"#), "not relative to `__memory_base`");
    assert_refused(
        &format!(r#"{side} (import "env" "other" (global i32)) (data (global.get 0) "x"))"#),
        "not relative to `__memory_base`",
    );
}

#[test]
fn instructions_on_data_segments_are_refused() {
    let module = |instruction| format!(r#"(module (memory 1) (data (i32.const 0) "x") (func {instruction}))"#);
    let init = module("(memory.init 0 (i32.const 0) (i32.const 0) (i32.const 0))");
    assert_refused(&init, "function 0 uses memory.init");
    assert_refused(&module("data.drop 0"), "function 0 uses data.drop");
}

#[test]
fn tables_that_are_not_the_programs_function_table_are_refused() {
    let export = r#"(func (export "f"))"#;
    assert_refused(&format!(r#"(module (import "env" "t" (table 1 funcref)) {export})"#), "must define it");
    assert_refused(&format!("(module (table 1 externref) {export})"), "does not hold functions");
    assert_refused(&format!("(module (table 0xffffffff funcref) {export})"), "it is full");
    assert_refused("(module (table 1 funcref) (elem (i32.const 1) 0) (func))", "beyond its end");
    let side = "(module (@dylink.0 (mem-info))";
    assert_refused(&format!("{side} (table 1 funcref) {export})"), "must import it");
    assert_refused(
        &format!(r#"{side} (import "env" "t" (table 1 funcref)) (elem (i32.const 0) 0) {export})"#),
        "element segment 0 cannot be placed",
    );
    let dylink = "(module (@dylink.0 (mem-info (memory 0 0) (table 0xffffffff 0)))";
    assert_refused(&format!("{dylink} {export})"), "it is full");
}

#[test]
fn reserving_too_many_slots_is_refused() {
    let options = Options { reserved_slots: u32::MAX, ..Options::default() };
    let refusal = refusal_with(r#"(module (table 1 funcref) (func (export "f")))"#, &options);
    assert!(refusal.contains("it is full"), "{refusal}");
}

#[test]
fn impossible_alignments_are_refused() {
    assert_refused("(module (@dylink.0 (mem-info (memory 0 32) (table 0 0))))", "alignment");
}

#[test]
fn both_kinds_of_exceptions_in_one_function_are_refused() {
    assert_refused("(module (func try_table end try end))", "legacy exceptions too");
}

#[test]
fn exports_that_collide_with_the_translations_own_are_refused() {
    assert_refused(r#"(module (func $f (export "belljar:start")) (start $f))"#, "belljar:start");
}

#[test]
fn safepoints_without_a_memory_are_refused() {
    let options = Options { safepoints: true, ..Options::default() };
    let refusal = refusal_with("(module (func loop end))", &options);
    assert!(refusal.contains("no memory for safepoints"), "{refusal}");
}

#[test]
fn invalid_stack_padding_is_refused() {
    let refused = |text: &str, bytes| {
        refusal_with(text, &Options { stack_padding: vec![("f".to_owned(), bytes)], ..Options::default() })
    };
    let function = r#"(func (export "f"))"#;
    let stack_pointer = r#"(global (export "__stack_pointer") (mut i32) (i32.const 0))"#;
    assert!(refused(&format!("(module {stack_pointer})"), 16).contains("no function"));
    assert!(refused(&format!("(module {function})"), 16).contains("__stack_pointer"));
    assert!(refused(&format!("(module {function} {stack_pointer})"), 8).contains("multiples of 16"));
    assert!(refused(&format!("(module {function} {stack_pointer})"), 1 << 31).contains("multiples of 16"));
    let constant = r#"(global (export "__stack_pointer") i32 (i32.const 0))"#;
    assert!(refused(&format!("(module {function} {constant})"), 16).contains("mutable"));
    let imported = r#"(import "env" "f" (func $f)) (export "f" (func $f))"#;
    assert!(refused(&format!("(module {imported} {stack_pointer})"), 16).contains("imported"));
}

/// Returns a module of each kind, with an instance of every construct that is rewritten.
fn samples() -> Vec<Vec<u8>> {
    let body = r#"
      (tag $t (param i32)) (tag $u)
      (func $start) (start $start)
      (func $f (export "f") (param i32) (result i32)
        (global.set $sp (i32.sub (global.get $sp) (i32.const 16)))
        loop $again (result i32)
          try $outer (result i32)
            try (result i32)
              try (result i32) (throw $t (local.get 0)) delegate $outer
            catch $u
              rethrow 0
            catch_all
              (br $again)
            end
          catch $t
            (br_table 0 2 (local.get 0))
          end
        end)
      (global (export "d") i32 (i32.const 4))"#;
    let main = format!(
        r#"(module (memory (export "memory") 1) (table (export "__indirect_function_table") 2 funcref)
          (global $sp (export "__stack_pointer") (mut i32) (i32.const 1024))
          (global (export "__stack_low") i32 (i32.const 512))
          {body} (elem (i32.const 1) $f) (data (i32.const 8) "data"))"#
    );
    let side = format!(
        r#"(module (@dylink.0 (mem-info (memory 8 2) (table 1 0)) (needed "l.so") (export-info "d" tls))
          (import "env" "memory" (memory 1)) (import "env" "__indirect_function_table" (table 1 funcref))
          (import "env" "__memory_base" (global $m i32)) (import "env" "__table_base" (global $b i32))
          (import "env" "__stack_pointer" (global $sp (mut i32)))
          {body} (elem (global.get $b) func $f $start) (data (global.get $m) "data"))"#
    );
    vec![wat::parse_str(main).unwrap(), wat::parse_str(side).unwrap()]
}

#[test]
fn a_damaged_module_is_refused_or_translated_to_a_valid_one() {
    let options = Options {
        safepoints: true,
        reserved_slots: 4,
        stack_padding: vec![("f".to_owned(), 32)],
        keep_exports: None,
        stack_checks: true,
        inline: 100,
    };
    let mut translations = 0;
    for sample in samples() {
        translate(&sample, &options).unwrap();
        // Replaces every byte by each of a few values, and truncates the module at every position.
        for position in 8..sample.len() {
            let _ = translate(&sample[..position], &options);
            let original = sample[position];
            for value in [0, 1, 0x7f, 0x80, 0xff, 0x40, original ^ 1, original ^ 2, original.wrapping_add(1)] {
                let mut damaged = sample.clone();
                damaged[position] = value;
                if let Ok(translated) = translate(&damaged, &options) {
                    translations += 1;
                    Validator::new_with_features(WasmFeatures::default()).validate_all(&translated.wasm).unwrap();
                }
            }
        }
    }
    assert!(translations > 100, "too few damaged modules were still valid: {translations}");
}
