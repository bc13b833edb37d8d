//! Tests of stack checks: a function traps when it allocates more shadow stack than there is, and otherwise works.

use wasmtime::{
    Global, GlobalType, Memory, MemoryType, Mutability, Ref, RefType, Store, Table, TableType, Val, ValType,
};

use super::super::{Options, TranslateError, translate};
use super::{Guest, engine, instantiate, translated};

/// A stack of 1,024 bytes, from 2,048 down.
const STACK: &str = r#"
  (global $sp (export "__stack_pointer") (mut i32) (i32.const 2048))
  (global (export "__stack_low") i32 (i32.const 1024))"#;

fn options() -> Options {
    Options { stack_checks: true, inline: 100, ..Options::default() }
}

fn started(functions: &str) -> Guest {
    Guest::with(&format!("(module {STACK} {functions})"), &options())
}

/// A function with a frame of 64 bytes, as LLVM writes it, that calls itself `depth` times.
const RECURSIVE: &str = r#"
  (func $f (export "f") (param $depth i32) (result i32)
    (local $frame i32)
    global.get $sp
    i32.const 64
    i32.sub
    local.tee $frame
    global.set $sp
    (if (local.get $depth) (then (drop (call $f (i32.sub (local.get $depth) (i32.const 1))))))
    local.get $frame
    i32.const 64
    i32.add
    global.set $sp
    local.get $depth)"#;

#[test]
fn recursion_traps_at_the_end_of_the_stack() {
    let mut guest = started(RECURSIVE);
    assert_eq!(guest.call("f", 15), Ok(15), "16 frames of 64 bytes fill the stack");
    assert_eq!(guest.global("__stack_pointer"), 2048);
    assert_eq!(guest.call::<_, i32>("f", 16), Err("trapped"));
    assert_eq!(guest.global("__stack_pointer"), 1024 - 64);
}

#[test]
fn every_way_of_lowering_the_stack_pointer_is_checked() {
    // Each with a parameter for which the pointer stays in the stack, and one for which it does not.
    let bodies = [
        ("global.get $sp local.get 0 i32.sub global.set $sp", 1024, 1025),
        ("global.get $sp local.get 0 i32.add i32.const -16 i32.and global.set $sp", -1024, -1025),
        ("local.get 0 global.set $sp", 1024, 1023),
        ("local.get 0 i32.const -16 i32.add global.set $sp", 1040, 1039),
        ("i32.const 4 i32.const 5 i32.add drop local.get 0 global.set $sp", 1024, 1023),
        ("local.get 0 call $inlined", 1024, 1023),
    ];
    for (body, inside, outside) in bodies {
        let inlined = "(func $inlined (param i32) local.get 0 global.set $sp)";
        let text = format!(r#"{inlined} (func (export "f") (param i32) {body})"#);
        let mut guest = started(&text);
        assert_eq!(guest.call("f", inside), Ok(()), "{body}");
        assert_eq!(guest.global("__stack_pointer"), 1024, "{body}");
        let mut guest = started(&text);
        assert_eq!(guest.call::<_, ()>("f", outside), Err("trapped"), "{body}");
    }
}

#[test]
fn padding_is_checked() {
    let options = Options { stack_padding: vec![("f".to_owned(), 64)], ..options() };
    let recursive = r#"(func $f (export "f") (param $depth i32)
      (if (local.get $depth) (then (call $f (i32.sub (local.get $depth) (i32.const 1))))))"#;
    let mut guest = Guest::with(&format!("(module {STACK} {recursive})"), &options);
    assert_eq!(guest.call::<_, ()>("f", 15), Ok(()));
    assert_eq!(guest.call::<_, ()>("f", 16), Err("trapped"));
}

#[test]
fn side_module_is_checked_against_the_main_modules_stack() {
    let side = translated(
        &format!(
            r#"(module
              (@dylink.0 (mem-info (memory 0 0)))
              (import "env" "memory" (memory 1))
              (import "env" "__stack_pointer" (global $sp (mut i32)))
              (global $own (export "own") (mut i32) (i32.const 7))
              {RECURSIVE}
              (func (export "get_own") (result i32) global.get $own))"#
        ),
        &Options { stack_checks: true, ..Options::default() },
    );
    let mut store = Store::new(&engine(), ());
    let memory = Memory::new(&mut store, MemoryType::new(1, None)).unwrap();
    let mut global = |mutability, value| {
        Global::new(&mut store, GlobalType::new(ValType::I32, mutability), Val::I32(value)).unwrap()
    };
    let (pointer, base, low) =
        (global(Mutability::Var, 2048), global(Mutability::Const, 0), global(Mutability::Const, 1024));
    let table = Table::new(&mut store, TableType::new(RefType::FUNCREF, 8, None), Ref::Func(None)).unwrap();
    let imports = [memory.into(), pointer.into(), table.into(), base.into(), low.into()];
    let instance = instantiate(&mut store, &side.wasm, &imports);
    let f = instance.get_typed_func::<i32, i32>(&mut store, "f").unwrap();
    assert_eq!(f.call(&mut store, 15).unwrap(), 15);
    let own = instance.get_typed_func::<(), i32>(&mut store, "get_own").unwrap();
    assert_eq!(own.call(&mut store, ()).unwrap(), 7, "indices of its own globals have moved");
    assert!(f.call(&mut store, 16).is_err());
}

#[test]
fn module_without_a_stack_is_not_checked() {
    let text = r#"(module (func (export "f") (param i32) (result i32) local.get 0))"#;
    assert_eq!(Guest::with(text, &options()).call("f", 3), Ok(3));
}

#[test]
fn stack_of_unknown_end_is_refused() {
    let pointer = r#"(global $sp (export "__stack_pointer") (mut i32) (i32.const 2048))"#;
    let low = r#"(global (export "__stack_low") (mut i32) (i32.const 1024))"#;
    for end in ["", low] {
        let wasm = wat::parse_str(format!("(module {pointer} {end} {RECURSIVE})")).unwrap();
        assert!(matches!(translate(&wasm, &options()), Err(TranslateError::StackChecks)));
    }
}
