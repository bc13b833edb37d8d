//! Builds side modules from WAT, and the main module that loads them.

use crate::guest::{Guest, assemble, module};

pub(crate) const LOCAL: u32 = 0;
pub(crate) const GLOBAL: u32 = 256;
pub(crate) const NOLOAD: u32 = 4;

/// A main module whose libraries can call `main_answer`, and find 42 at `main_data`.
///
/// Libraries record their actions with `note`, which appends a digit to the number at `notes`.
const MAIN: &str = r#"
  (global (export "main_data") i32 (i32.const 4096))
  (global (export "notes") i32 (i32.const 4104))
  (data (i32.const 4096) "\2a\00\00\00")
  (func (export "main_answer") (result i32) i32.const 7)
  (func (export "note") (param i32)
    (i32.store (i32.const 4104) (i32.add (i32.mul (i32.load (i32.const 4104)) (i32.const 10)) (local.get 0))))
  (func (export "open") (param i32) (result i32) local.get 0 call $dlopen)
  (func (export "symbol") (param i32 i32) (result i32) local.get 0 local.get 1 i32.const 0 call $dlsym)
  (func (export "call") (param i32) (result i32) local.get 0 call_indirect (result i32))
  (func (export "call_double") (param i32) (result f64) local.get 0 call_indirect (result f64))
  (func (export "open_and_catch") (param i32) (result i32)
    try (result i32)
      local.get 0 call $dlopen
    catch $cpp
    end)
  (func (export "call_and_catch") (param i32) (result i32)
    try (result i32)
      local.get 0 call_indirect (result i32)
    catch $cpp
      i32.const 1000 i32.add
    catch $longjmp
      i32.const 2000 i32.add
    end)
"#;

/// Starts a guest with the libraries in `files`.
pub(crate) fn guest(files: &[(&str, Vec<u8>)]) -> Guest {
    let imports = r#"
      (import "env" "_dlopen_js" (func $dlopen (param i32) (result i32)))
      (import "env" "_dlsym_js" (func $dlsym (param i32 i32 i32) (result i32)))"#;
    let keep = ["open", "symbol", "call", "call_double", "open_and_catch", "call_and_catch"];
    Guest::start(&module(imports, MAIN), &keep, files)
}

/// Assembles a side module. `sections` are those of `dylink.0`.
///
/// The body starts with imports, and may use `$base` and `$table` for its bases and `$stack` for the stack pointer.
pub(crate) fn library(sections: &str, body: &str) -> Vec<u8> {
    assemble(&format!(
        r#"(module
          (@dylink.0 {sections})
          (import "env" "memory" (memory 1))
          (import "env" "__indirect_function_table" (table 0 funcref))
          (import "env" "__memory_base" (global $base i32))
          (import "env" "__table_base" (global $table i32))
          (import "env" "__stack_pointer" (global $stack (mut i32)))
          {body})"#
    ))
}
