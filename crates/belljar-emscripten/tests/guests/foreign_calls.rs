//! Tests of libffi's host functions: calls of any signature, and hostile descriptions of them.

mod closures;
mod variadic;

use belljar_emscripten::InstanceError;
use belljar_emscripten::termination::Termination;

use crate::guest::{Guest, module, on_guest_thread};

// `ffi_type` ids.
const VOID: u16 = 0;
const INT: u16 = 1;
const FLOAT: u16 = 2;
const DOUBLE: u16 = 3;
const LONG_DOUBLE: u16 = 4;
const UINT8: u16 = 5;
const SINT8: u16 = 6;
const SINT16: u16 = 8;
const SINT64: u16 = 12;
const STRUCT: u16 = 13;
const COMPLEX: u16 = 15;

const IMPORTS: &str = r#"
  (import "env" "ffi_call_js" (func $ffi_call (param i32 i32 i32 i32)))
  (import "env" "ffi_closure_alloc_js" (func $closure_alloc (param i32 i32) (result i32)))
  (import "env" "ffi_closure_free_js" (func $closure_free (param i32)))
  (import "env" "ffi_prep_closure_loc_js" (func $closure_prep (param i32 i32 i32 i32 i32) (result i32)))"#;

/// Functions to call, in slots 1 to 7, and functions that call libffi.
const BODY: &str = r#"
  (elem (i32.const 1) $mixed $sum_pair $va_sum $nothing $throws $times_ten $weigh)
  (func $mixed (param i32 i64 f32 f64 i32 i32) (result f64)
    (f64.add (f64.convert_i32_s (local.get 0))
      (f64.add (f64.convert_i64_s (local.get 1))
        (f64.add (f64.promote_f32 (local.get 2))
          (f64.add (local.get 3)
            (f64.add (f64.convert_i32_s (local.get 4)) (f64.convert_i32_s (local.get 5))))))))
  ;; struct pair { int a, b; } sum_pair(struct pair): { a + b, a - b }; spoils its argument.
  (func $sum_pair (param $result i32) (param $pair i32)
    (i32.store (local.get $result) (i32.add (i32.load (local.get $pair)) (i32.load offset=4 (local.get $pair))))
    (i32.store offset=4 (local.get $result)
      (i32.sub (i32.load (local.get $pair)) (i32.load offset=4 (local.get $pair))))
    (i32.store (local.get $pair) (i32.const 0)))
  ;; int, then an int, a double and a struct pair by ...
  (func $va_sum (param $first i32) (param $rest i32) (result i32)
    (local $double i32)
    (local.set $double (i32.and (i32.add (local.get $rest) (i32.const 11)) (i32.const -8)))
    (i32.add (local.get $first)
      (i32.add (i32.load (local.get $rest))
        (i32.add (i32.trunc_f64_s (f64.load (local.get $double)))
          (i32.load offset=4 (i32.load offset=8 (local.get $double)))))))
  (func $nothing)
  (func $throws (throw $cpp (i32.const 9)))
  ;; The closure's target: *(int *)result = 10 * **(int **)arguments + user data.
  (func $times_ten (param $cif i32) (param $result i32) (param $arguments i32) (param $user i32)
    (i32.store (local.get $result)
      (i32.add (local.get $user) (i32.mul (i32.const 10) (i32.load (i32.load (local.get $arguments)))))))
  ;; The same for (signed char, double, struct pair, long long) -> long long: all of it added up.
  (func $weigh (param $cif i32) (param $result i32) (param $arguments i32) (param $user i32)
    (i64.store (local.get $result)
      (i64.add (i64.load8_s (i32.load (local.get $arguments)))
        (i64.add (i64.trunc_f64_s (f64.load (i32.load offset=4 (local.get $arguments))))
          (i64.add (i64.load32_s offset=4 (i32.load offset=8 (local.get $arguments)))
            (i64.load (i32.load offset=12 (local.get $arguments))))))))
  (func (export "ffi_call") (param i32 i32 i32 i32)
    local.get 0 local.get 1 local.get 2 local.get 3 call $ffi_call)
  (func (export "ffi_call_and_catch") (param i32 i32 i32 i32) (result i32)
    try (result i32)
      local.get 0 local.get 1 local.get 2 local.get 3 call $ffi_call i32.const 0
    catch $cpp
    end)
  (func (export "closure_alloc") (param i32 i32) (result i32) local.get 0 local.get 1 call $closure_alloc)
  (func (export "closure_free") (param i32) local.get 0 call $closure_free)
  (func (export "closure_prep") (param i32 i32 i32 i32 i32) (result i32)
    local.get 0 local.get 1 local.get 2 local.get 3 local.get 4 call $closure_prep)
  (func (export "call_int") (param i32 i32) (result i32)
    local.get 1 local.get 0 call_indirect (param i32) (result i32))
  (func (export "call_weigh") (param i32 i32 f64 i32 i64) (result i64)
    local.get 1 local.get 2 local.get 3 local.get 4
    local.get 0 call_indirect (param i32 f64 i32 i64) (result i64))
  (func (export "stack") (result i32) global.get $stack)"#;

const MIXED: u32 = 1;
const SUM_PAIR: u32 = 2;
const VA_SUM: u32 = 3;
const NOTHING: u32 = 4;
const THROWS: u32 = 5;
const TIMES_TEN: u32 = 6;
const WEIGH: u32 = 7;

fn guest() -> Guest {
    let keep = [
        "ffi_call",
        "ffi_call_and_catch",
        "closure_alloc",
        "closure_free",
        "closure_prep",
        "call_int",
        "call_weigh",
        "stack",
    ];
    Guest::start(&module(IMPORTS, BODY), &keep, &[])
}

impl Guest {
    /// Writes an `ffi_type`.
    fn ffi_type(&mut self, size: u32, align: u16, id: u16, members: &[u32]) -> u32 {
        let members = match members {
            [] => 0,
            members => self.put_words(&[members, &[0]].concat()),
        };
        self.put_words(&[size, u32::from(align) | u32::from(id) << 16, members])
    }

    fn simple(&mut self, id: u16) -> u32 {
        self.ffi_type(8, 8, id, &[])
    }

    /// Writes the type `struct { int a, b; }`.
    fn pair(&mut self) -> u32 {
        let int = self.simple(INT);
        self.ffi_type(8, 4, STRUCT, &[int, int])
    }

    /// Writes an `ffi_cif`.
    fn cif(&mut self, result: u32, arguments: &[u32], fixed: usize) -> u32 {
        let types = self.put_words(arguments);
        self.put_words(&[0, arguments.len() as u32, types, result, 0, 0, fixed as u32])
    }

    /// Writes an array of pointers to values, as `ffi_call` expects.
    fn values(&mut self, values: &[&[u8]]) -> u32 {
        let pointers: Vec<u32> = values.iter().map(|value| self.put(value)).collect();
        self.put_words(&pointers)
    }

    fn ffi_call(&mut self, cif: u32, function: u32, result: u32, values: u32) -> Result<(), InstanceError> {
        self.try_call("ffi_call", (cif, function, result, values))
    }
}

#[track_caller]
fn assert_refused(result: Result<(), InstanceError>, why: &str) {
    match result {
        Err(InstanceError::Terminated(Termination::ForeignCall(what))) => assert!(what.contains(why), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_simple_type_is_passed_as_its_value() {
    on_guest_thread(|| {
        let mut guest = guest();
        let ids = [INT, SINT64, FLOAT, DOUBLE, SINT8, SINT16];
        let types: Vec<u32> = ids.iter().map(|&id| guest.simple(id)).collect();
        let result_type = types[3];
        let cif = guest.cif(result_type, &types, 6);
        let values = guest.values(&[
            &(-1i32).to_le_bytes(),
            &(1i64 << 40).to_le_bytes(),
            &0.5f32.to_le_bytes(),
            &0.25f64.to_le_bytes(),
            &(-100i8).to_le_bytes(),
            &(-3000i16).to_le_bytes(),
        ]);
        let result = guest.put(&[0; 8]);
        guest.ffi_call(cif, MIXED, result, values).unwrap();
        let sum = guest.instance.memory().read_f64(result).unwrap();
        assert_eq!(sum, (1i64 << 40) as f64 - 1.0 + 0.75 - 3100.0);
    });
}

#[test]
fn structures_are_passed_by_copy_and_returned_by_pointer() {
    on_guest_thread(|| {
        let mut guest = guest();
        let pair = guest.pair();
        let cif = guest.cif(pair, &[pair], 1);
        let value = guest.put_words(&[50, 8]);
        let values = guest.put_words(&[value]);
        let result = guest.put_words(&[0, 0]);
        let stack = guest.call::<u32>("stack", ());
        guest.ffi_call(cif, SUM_PAIR, result, values).unwrap();
        assert_eq!((guest.word(result), guest.word(result + 4)), (58, 42));
        assert_eq!(guest.word(value), 50, "the caller's own is as it was");
        assert_eq!(guest.call::<u32>("stack", ()), stack);
    });
}

#[test]
fn a_structure_of_one_member_is_passed_as_the_member() {
    on_guest_thread(|| {
        let mut guest = guest();
        let double = guest.simple(DOUBLE);
        let inner = guest.ffi_type(8, 8, STRUCT, &[double]);
        let boxed = guest.ffi_type(8, 8, STRUCT, &[inner]);
        let [int, long, float, byte, short] = [INT, SINT64, FLOAT, UINT8, SINT16].map(|id| guest.simple(id));
        let cif = guest.cif(boxed, &[int, long, float, boxed, byte, short], 6);
        let values = guest.values(&[&[0; 4], &[0; 8], &[0; 4], &2.5f64.to_le_bytes(), &[255], &[0; 2]]);
        let result = guest.put(&[0; 8]);
        guest.ffi_call(cif, MIXED, result, values).unwrap();
        assert_eq!(guest.instance.memory().read_f64(result).unwrap(), 257.5);
    });
}

#[test]
fn a_function_without_a_result_counts_as_returning_zero() {
    on_guest_thread(|| {
        let mut guest = guest();
        let int = guest.simple(INT);
        let cif = guest.cif(int, &[], 0);
        let result = guest.put_words(&[77]);
        guest.ffi_call(cif, NOTHING, result, 0).unwrap();
        assert_eq!(guest.word(result), 0);
    });
}

#[test]
fn an_exception_passes_through_a_foreign_call() {
    on_guest_thread(|| {
        let mut guest = guest();
        let void = guest.simple(VOID);
        let cif = guest.cif(void, &[], 0);
        let stack = guest.call::<u32>("stack", ());
        assert_eq!(guest.call::<i32>("ffi_call_and_catch", (cif, THROWS, 0, 0)), 9);
        assert_eq!(guest.call::<u32>("stack", ()), stack);
    });
}

#[test]
fn invalid_foreign_calls_end_the_program_with_the_reason() {
    on_guest_thread(|| {
        let call = |function: u32, make: &dyn Fn(&mut Guest) -> (u32, u32)| {
            let mut guest = guest();
            let (cif, values) = make(&mut guest);
            let result = guest.put(&[0; 16]);
            guest.ffi_call(cif, function, result, values)
        };
        let simple = |result: u16, arguments: &'static [u16]| {
            move |guest: &mut Guest| {
                let types: Vec<u32> = arguments.iter().map(|&id| guest.simple(id)).collect();
                let result = guest.simple(result);
                let cif = guest.cif(result, &types, types.len());
                let values: Vec<&[u8]> = types.iter().map(|_| &[0; 16][..]).collect();
                (cif, guest.values(&values))
            }
        };
        assert_refused(call(0, &simple(VOID, &[])), "no function at 0x0");
        assert_refused(call(u32::MAX, &simple(VOID, &[])), "0xffffffff is not a function pointer");
        assert_refused(call(NOTHING, &simple(VOID, &[INT])), "was called with (i32)");
        assert_refused(call(MIXED, &simple(DOUBLE, &[INT])), "function 1 has type");
        assert_refused(call(NOTHING, &simple(VOID, &[COMPLEX])), "complex");
        assert_refused(call(NOTHING, &simple(VOID, &[99])), "99 is not a libffi type");
        assert_refused(call(NOTHING, &simple(VOID, &[VOID])), "void");
        assert_refused(call(NOTHING, &|_| (u32::MAX - 3, 0)), "outside of memory");
        assert_refused(call(NOTHING, &|guest| (guest.put_words(&[0, 1, u32::MAX, 0, 0, 0, 1]), 0)), "outside");
        assert_refused(call(NOTHING, &|guest| (guest.put_words(&[0, u32::MAX, 0, 0, 0, 0, 0]), 0)), "the maximum");
        assert_refused(call(NOTHING, &|guest| (guest.put_words(&[0, 1, 0, 0, 0, 0, 2]), 0)), "2 fixed of 1 arguments");
    });
}

#[test]
fn invalid_structures_end_the_program_with_the_reason() {
    on_guest_thread(|| {
        let call = |make: &dyn Fn(&mut Guest) -> u32| {
            let mut guest = guest();
            let argument = make(&mut guest);
            let void = guest.simple(VOID);
            let cif = guest.cif(void, &[argument], 1);
            let values = guest.values(&[&[0; 16]]);
            guest.ffi_call(cif, TIMES_TEN, 0, values)
        };
        let huge = |guest: &mut Guest| {
            let int = guest.simple(INT);
            guest.ffi_type(u32::MAX, 4, STRUCT, &[int, int])
        };
        assert_refused(call(&huge), "overflow the stack");
        let large = |guest: &mut Guest| {
            let int = guest.simple(INT);
            guest.ffi_type(40_000, 4, STRUCT, &[int, int])
        };
        assert_refused(call(&large), "was called with (i32)");
        let too_large = |guest: &mut Guest| {
            let int = guest.simple(INT);
            guest.ffi_type(60_000, 4, STRUCT, &[int, int])
        };
        assert_refused(call(&too_large), "overflow the stack");
        for align in [0, 3, 8192] {
            let skewed = |guest: &mut Guest| {
                let int = guest.simple(INT);
                guest.ffi_type(8, align, STRUCT, &[int, int])
            };
            assert_refused(call(&skewed), "aligned");
        }
        let endless = |guest: &mut Guest| {
            let itself = guest.ffi_type(8, 4, STRUCT, &[1]);
            let members = guest.word(itself + 8);
            guest.instance.memory().write_u32(members, itself).unwrap();
            itself
        };
        assert_refused(call(&endless), "nested too deeply");
    });
}

#[test]
fn long_doubles_are_passed_as_two_halves() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (void, long_double) = (guest.simple(VOID), guest.simple(LONG_DOUBLE));
        let cif = guest.cif(void, &[long_double], 1);
        let values = guest.values(&[&[0; 16]]);
        assert_refused(guest.ffi_call(cif, NOTHING, 0, values), "(i64, i64)");
    });
}
