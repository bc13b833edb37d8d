//! Tests of symbols and their slots, segments, the start function, and the data for the dynamic linker.

use std::collections::BTreeSet;

use wasmtime::{
    Extern, Global, GlobalType, Instance, Memory, MemoryType, Mutability, Ref, RefType, Store, Table, TableType, Val,
};

use super::super::{Dylink, GLOBAL_EXPORT, Options, START_EXPORT, Segment, Symbol, Translated, parse_dylink};
use super::{Guest, engine, function_slot, translated};

/// A main module with functions 1 to 4; the second and third are in the table already.
const MAIN: &str = r#"(module
  (memory (export "memory") 1)
  (table (export "__indirect_function_table") 4 4 funcref)
  (elem (i32.const 2) func $three $two)
  (func (export "one") (result i32) i32.const 1)
  (func $two (export "two") (export "zwei") (result i32) i32.const 2)
  (func $three (export "three") (result i32) i32.const 3)
  (func $four (export "four") (result i32) i32.const 4)
  (global (export "data") i32 (i32.const 4096))
  (global (export "__stack_pointer") (mut i32) (i32.const 65536))
  (global (export "wide") i64 (i64.const 1)))"#;

#[test]
fn every_exported_function_is_called_through_its_slot() {
    let mut guest = Guest::new(MAIN);
    for (name, value) in [("one", 1), ("two", 2), ("zwei", 2), ("three", 3), ("four", 4)] {
        assert_eq!(guest.call_symbol::<(), i32>(name, ()), value, "{name}");
    }
}

#[test]
fn a_function_keeps_its_slot_and_has_only_one() {
    let main = translated(MAIN, &Options::default());
    let slots = ["one", "two", "zwei", "three", "four"].map(|name| function_slot(&main, name));
    assert_eq!(slots, [4, 3, 3, 2, 5]);
}

#[test]
fn overwritten_element_slots_are_not_assigned() {
    let mut guest = Guest::new(
        r#"(module (table (export "__indirect_function_table") 3 funcref)
             (elem (i32.const 1) func $a $a) (elem (i32.const 1) funcref (ref.func $b))
             (func $a (export "a") (result i32) i32.const 1)
             (func $b (export "b") (result i32) i32.const 2))"#,
    );
    assert_eq!(function_slot(&guest.translated, "a"), 2);
    assert_eq!(guest.call_symbol::<(), i32>("a", ()), 1);
    assert_eq!(guest.call_symbol::<(), i32>("b", ()), 2);
}

#[test]
fn exported_constants_are_addresses_and_other_globals_are_not() {
    let main = translated(MAIN, &Options::default());
    assert_eq!(main.symbols.0["data"], Symbol::Data(4096));
    assert!(!main.symbols.0.contains_key("__stack_pointer"));
    assert!(!main.symbols.0.contains_key("wide"));
}

#[test]
fn reserved_slots_are_empty_and_last() {
    let mut guest = Guest::with(MAIN, &Options { reserved_slots: 3, ..Options::default() });
    assert_eq!(guest.translated.reserved, 6);
    let table = guest.instance.get_table(&mut guest.store, "__indirect_function_table").unwrap();
    assert_eq!(table.size(&guest.store), 9);
    assert_eq!(table.ty(&guest.store).maximum(), Some(9));
    for slot in 6..9 {
        assert!(matches!(table.get(&mut guest.store, slot), Some(Ref::Func(None))));
    }
}

#[test]
fn main_module_without_a_table_gets_one_with_empty_slot_zero() {
    let mut guest = Guest::new(r#"(module (func (export "f") (result i32) i32.const 8))"#);
    assert_eq!(function_slot(&guest.translated, "f"), 1);
    assert_eq!(guest.call_symbol::<(), i32>("f", ()), 8);
}

#[test]
fn dropped_exports_stay_reachable_as_symbols() {
    let keep = BTreeSet::from(["one", "__stack_pointer", "absent"].map(str::to_owned));
    let mut guest = Guest::with(MAIN, &Options { keep_exports: Some(keep), ..Options::default() });
    assert_eq!(guest.exports(), ["memory", "__indirect_function_table", "one", "__stack_pointer"]);
    assert_eq!(guest.call_symbol::<(), i32>("four", ()), 4);
}

#[test]
fn data_and_start_are_taken_out_of_a_main_module() {
    let mut guest = Guest::new(
        r#"(module (memory (export "memory") 1)
             (data (i32.const 16) "first") (data (i32.const 100) "") (data (i32.const 18) "second")
             (global $started (export "started") (mut i32) (i32.const 0))
             (func $start (global.set $started (i32.const 1)))
             (start $start))"#,
    );
    let segment = |offset, bytes: &str| Segment { offset, bytes: bytes.into() };
    assert_eq!(guest.translated.segments, [segment(16, "first"), segment(100, ""), segment(18, "second")]);
    let memory = guest.instance.get_memory(&mut guest.store, "memory").unwrap();
    assert!(memory.data(&guest.store).iter().all(|byte| *byte == 0));
    assert_eq!(guest.global("started"), 0);
    assert_eq!(guest.call(START_EXPORT, ()), Ok(()));
    assert_eq!(guest.global("started"), 1);
}

#[test]
fn unexported_mutable_globals_are_exported() {
    let text = r#"(module (global i32 (i32.const 1)) (global (mut i32) (i32.const 2)) (global (mut i64) (i64.const 3))
      (global (export "shown") (mut i32) (i32.const 4)))"#;
    let mut guest = Guest::new(text);
    let hidden = [1, 2].map(|index| format!("{GLOBAL_EXPORT}{index}"));
    assert_eq!(guest.exports(), ["shown", &hidden[0], &hidden[1]]);
    assert_eq!(guest.global(&hidden[0]), 2);
    // A global is also added if its own export is dropped.
    let mut guest = Guest::with(text, &Options { keep_exports: Some(BTreeSet::new()), ..Options::default() });
    assert_eq!(guest.exports().len(), 3);
    assert_eq!(guest.global(&format!("{GLOBAL_EXPORT}3")), 4);
}

#[test]
fn got_imports_of_a_main_module_become_null_globals() {
    let mut guest = Guest::new(
        r#"(module (import "GOT.func" "a" (global $a (mut i32))) (import "GOT.mem" "b" (global $b (mut i32)))
             (global $c i32 (i32.const 6))
             (func (export "f") (result i32) (i32.add (global.get $a) (i32.add (global.get $b) (global.get $c)))))"#,
    );
    assert_eq!(guest.call("f", ()), Ok(6));
}

#[test]
fn custom_sections_are_dropped() {
    let main = translated(r#"(module $named (@custom "producers" "me") (func $f))"#, &Options::default());
    let sections = wasmparser::Parser::new(0).parse_all(&main.wasm);
    assert!(sections.into_iter().all(|section| !matches!(section.unwrap(), wasmparser::Payload::CustomSection(_))));
}

/// A library that exports a function that is in its table, one that is not, and data.
const SIDE: &str = r#"(module
  (@dylink.0 (mem-info (memory 64 4) (table 1 0)) (needed "libone.so" "libtwo.so")
    (export-info "tls_variable" tls) (export-info "plain" undefined)
    (import-info "env" "maybe" binding-weak undefined) (import-info "env" "surely" undefined)
    (runtime-path "$ORIGIN/lib"))
  (import "env" "memory" (memory 1))
  (import "env" "__indirect_function_table" (table 1 funcref))
  (import "env" "__memory_base" (global $memory_base i32))
  (import "env" "__table_base" (global $table_base i32))
  (func $in (export "in") (result i32) i32.const 1)
  (func $out (export "out") (result i32) (i32.load8_u (i32.add (global.get $memory_base) (i32.const 5))))
  (global (export "data") i32 (i32.const 5))
  (global (export "tls_variable") i32 (i32.const 8))
  (elem (global.get $table_base) func $in)
  (data (global.get $memory_base) "abc")
  (data (offset (i32.add (global.get $memory_base) (i32.const 5))) "de"))"#;

/// Links a side module by hand, its memory at 1024 and its table slots at 7, and calls a function through its slot.
fn link_and_call(side: &Translated, name: &str) -> i32 {
    let engine = engine();
    let mut store = Store::new(&engine, ());
    let memory = Memory::new(&mut store, MemoryType::new(1, None)).unwrap();
    for segment in &side.segments {
        memory.write(&mut store, 1024 + segment.offset as usize, &segment.bytes).unwrap();
    }
    let table = Table::new(&mut store, TableType::new(RefType::FUNCREF, 20, None), Ref::Func(None)).unwrap();
    let module = wasmtime::Module::new(&engine, &side.wasm).unwrap();
    let mut global = |value| {
        let ty = GlobalType::new(wasmtime::ValType::I32, Mutability::Const);
        Extern::Global(Global::new(&mut store, ty, Val::I32(value)).unwrap())
    };
    let (memory_base, table_base) = (global(1024), global(7));
    let imports = module.imports().map(|import| match import.name() {
        "memory" => Extern::Memory(memory),
        "__indirect_function_table" => Extern::Table(table),
        "__memory_base" => memory_base.clone(),
        "__table_base" => table_base.clone(),
        other => panic!("import {other}"),
    });
    Instance::new(&mut store, &module, &imports.collect::<Vec<_>>()).unwrap();
    let slot = 7 + function_slot(side, name);
    let function = table.get(&mut store, u64::from(slot)).unwrap().unwrap_func().copied().unwrap();
    function.typed::<(), i32>(&store).unwrap().call(&mut store, ()).unwrap()
}

#[test]
fn side_module_symbols_and_segments_are_relative() {
    let side = translated(SIDE, &Options { reserved_slots: 5, ..Options::default() });
    assert_eq!(side.symbols.0["data"], Symbol::Data(5));
    assert_eq!((function_slot(&side, "in"), function_slot(&side, "out")), (0, 1));
    assert_eq!(side.segments.iter().map(|segment| segment.offset).collect::<Vec<_>>(), [0, 5]);
    assert_eq!(side.reserved, 0);
    assert_eq!(link_and_call(&side, "in"), 1);
    assert_eq!(link_and_call(&side, "out"), i32::from(b'd'));
}

#[test]
fn dylink_section_is_read_completely() {
    let original = Dylink {
        memory_size: 64,
        memory_align: 16,
        table_size: 1,
        table_align: 1,
        needed: vec!["libone.so".to_owned(), "libtwo.so".to_owned()],
        weak: BTreeSet::from(["maybe".to_owned()]),
        tls: BTreeSet::from(["tls_variable".to_owned()]),
        runtime_path: vec!["$ORIGIN/lib".to_owned()],
    };
    assert_eq!(parse_dylink(&wat::parse_str(SIDE).unwrap()).unwrap(), Some(original.clone()));
    let side = translated(SIDE, &Options::default());
    assert_eq!(side.dylink, Some(Dylink { table_size: 2, ..original }));
}

#[test]
fn a_module_without_dylink_section_has_none() {
    assert_eq!(parse_dylink(&wat::parse_str(MAIN).unwrap()).unwrap(), None);
    assert!(parse_dylink(b"no module").is_err());
}

#[test]
fn a_main_module_may_have_a_dylink_section_too() {
    let main = translated(
        r#"(module (@dylink.0 (mem-info (memory 0 4) (table 3 0))) (memory 1) (table 4 funcref)
             (data (i32.const 8) "x") (func (export "f")))"#,
        &Options::default(),
    );
    assert_eq!(main.dylink, None);
    assert_eq!(function_slot(&main, "f"), 4);
    assert_eq!(main.segments[0].offset, 8);
}

#[test]
fn side_module_without_function_pointers_gets_missing_imports() {
    // The added import comes before the module's own globals, which move up by one.
    let side = translated(
        r#"(module (@dylink.0 (mem-info)) (import "env" "memory" (memory 1))
             (import "env" "__memory_base" (global $memory_base i32))
             (global $a i32 (i32.const 30)) (global $b (export "b") i32 (i32.const 5))
             (func (export "f") (result i32) (i32.add (global.get $a) (i32.add (global.get $b) (global.get $memory_base)))))"#,
        &Options::default(),
    );
    assert_eq!(side.dylink.as_ref().map(|dylink| dylink.table_size), Some(1));
    assert_eq!(side.symbols.0["b"], Symbol::Data(5));
    assert_eq!(link_and_call(&side, "f"), 30 + 5 + 1024);
}
