//! Tests of safepoints: all code that can run forever passes one.

use std::collections::BTreeSet;

use wasmparser::{Operator, Parser, Payload};

use super::super::{Options, SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH};
use super::{Guest, translated};

fn options() -> Options {
    Options { safepoints: true, ..Options::default() }
}

/// Returns the offset in the safepoint page of each load from it, with the instruction two before it.
fn loads(wasm: &[u8]) -> Vec<(u64, String)> {
    let page = format!("I32Const {{ value: {} }}", SAFEPOINT_ADDRESS.cast_signed());
    let mut loads = vec![];
    for payload in Parser::new(0).parse_all(wasm) {
        let Payload::CodeSectionEntry(body) = payload.unwrap() else { continue };
        let mut before = ["".to_owned(), "".to_owned()];
        for operator in body.get_operators_reader().unwrap() {
            let operator = operator.unwrap();
            if let Operator::I32Load { memarg } = &operator
                && before[1] == page
            {
                loads.push((memarg.offset, before[0].clone()));
            }
            before = [std::mem::take(&mut before[1]), format!("{operator:?}")];
        }
    }
    loads
}

const LOOPS: &str = r#"(module (memory (export "memory") 1)
  (func (export "f") (param i32) (result i32) (local $sum i32)
    loop $outer
      loop $inner (local.set $sum (i32.add (local.get $sum) (i32.const 1))) end
      (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
      (br_if $outer (local.get 0))
    end
    local.get $sum)
  (func (export "g") (param i32) (result i32)
    local.get 0
    loop (param i32) (result i32) i32.const 1 i32.add end)
  (func $tail (export "tail") (param i32) (result i32)
    (if (i32.eqz (local.get 0)) (then (return (i32.const 5))))
    (return_call $tail (i32.sub (local.get 0) (i32.const 1)))))"#;

#[test]
fn every_loop_begins_with_a_load_from_an_address_of_its_own() {
    let mut guest = Guest::with(LOOPS, &options());
    let loads = loads(&guest.translated.wasm);
    assert_eq!(loads.iter().filter(|(_, before)| before.starts_with("Loop")).count(), 3);
    assert_eq!(loads.len(), 4, "one more for the tail call: {loads:?}");
    let addresses: BTreeSet<u64> = loads.iter().map(|(address, _)| *address).collect();
    assert_eq!(addresses.len(), 4);
    assert_eq!(guest.call("f", 3), Ok(3));
    assert_eq!(guest.call("g", 3), Ok(4));
    assert_eq!(guest.call("tail", 3), Ok(5));
}

#[test]
fn safepoint_page_is_zero_read_only_and_beyond_growth() {
    let text = format!(
        r#"(module (memory (export "memory") 2)
          (func (export "read") (result i32) (i32.load (i32.const {SAFEPOINT_ADDRESS})))
          (func (export "write") (i32.store (i32.const {SAFEPOINT_ADDRESS}) (i32.const 1)))
          (func (export "before") (result i32) (i32.load (i32.const {})))
          (func (export "behind") (result i32) (i32.load (i32.const 0xffffff00)))
          (func (export "grow") (param i32) (result i32) (memory.grow (local.get 0))))"#,
        SAFEPOINT_ADDRESS - 4
    );
    let mut guest = Guest::with(&text, &options());
    assert_eq!(guest.call("read", ()), Ok(0));
    assert_eq!(guest.call::<(), ()>("write", ()), Err("trapped"));
    assert_eq!(guest.call::<(), i32>("before", ()), Err("trapped"));
    assert_eq!(guest.call::<(), i32>("behind", ()), Err("trapped"));
    assert_eq!(guest.call("grow", 0xffff - 2 + 1), Ok(-1));
    assert_eq!(guest.call("grow", 1), Ok(2));
}

#[test]
fn a_side_module_loads_from_the_memory_that_it_shares() {
    let side = translated(
        r#"(module (@dylink.0 (mem-info)) (import "env" "memory" (memory 1)) (import "env" "f" (func $f))
             (func (loop (call $f) (br 0))))"#,
        &options(),
    );
    let module = wasmtime::Module::new(&super::engine(), &side.wasm).unwrap();
    assert_eq!(module.imports().filter(|import| import.ty().memory().is_some()).count(), 1);
    assert_eq!(loads(&side.wasm).len(), 1);
}

#[test]
fn more_loops_than_words_in_a_page_share_addresses() {
    let text =
        format!("(module (memory 1) (func (export \"f\") {}))", "loop end ".repeat(SAFEPOINT_LENGTH as usize / 4 + 2));
    let mut guest = Guest::with(&text, &options());
    let loads = loads(&guest.translated.wasm);
    assert_eq!(loads.iter().map(|(address, _)| *address).max(), Some(u64::from(SAFEPOINT_LENGTH) - 4));
    assert_eq!(loads.last().unwrap().0, 4);
    assert_eq!(guest.call("f", ()), Ok(()));
}

#[test]
fn safepoints_are_off_by_default() {
    let guest = Guest::new(r#"(module (memory 1) (func (export "f") loop end))"#);
    assert_eq!(loads(&guest.translated.wasm), vec![]);
}
