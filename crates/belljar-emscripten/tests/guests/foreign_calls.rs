//! Tests of libffi's host functions: calls of any signature, closures, and hostile descriptions of either.

use belljar_emscripten::termination::Termination;
use belljar_emscripten::translate::Symbol;
use belljar_emscripten::{ForeignCalls, InstanceError};

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

    /// Allocates a closure. Returns its address and its code pointer.
    fn closure(&mut self) -> (u32, u32) {
        let code = self.put_words(&[0]);
        let closure = self.call("closure_alloc", (40, code));
        (closure, self.word(code))
    }

    /// Creates a closure `int (*)(int)` that returns ten times its argument, plus `user_data`.
    fn times_ten(&mut self, user_data: u32) -> (u32, u32) {
        let int = self.simple(INT);
        let cif = self.cif(int, &[int], 1);
        let (closure, code) = self.closure();
        assert_eq!(self.call::<i32>("closure_prep", (closure, cif, TIMES_TEN, user_data, code)), 0);
        (closure, code)
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
fn variable_arguments_are_laid_out_as_va_arg_expects() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (int, double, pair) = (guest.simple(INT), guest.simple(DOUBLE), guest.pair());
        let cif = guest.cif(int, &[int, int, double, pair], 1);
        let pair = [3i32.to_le_bytes(), 1000i32.to_le_bytes()].concat();
        let values = guest.values(&[&1i32.to_le_bytes(), &20i32.to_le_bytes(), &300f64.to_le_bytes(), &pair]);
        let result = guest.put_words(&[0]);
        guest.ffi_call(cif, VA_SUM, result, values).unwrap();
        assert_eq!(guest.word(result), 1321);
    });
}

#[test]
fn variable_arguments_have_c_promotions() {
    on_guest_thread(|| {
        let mut guest = guest();
        let [int, byte, float, pair] = [INT, SINT8, FLOAT, STRUCT].map(|id| match id {
            STRUCT => guest.pair(),
            id => guest.simple(id),
        });
        let cif = guest.cif(int, &[int, byte, float, pair], 1);
        let pair = [3i32.to_le_bytes(), 1000i32.to_le_bytes()].concat();
        let values = guest.values(&[&1i32.to_le_bytes(), &(-20i8).to_le_bytes(), &300.5f32.to_le_bytes(), &pair]);
        let result = guest.put_words(&[0]);
        guest.ffi_call(cif, VA_SUM, result, values).unwrap();
        assert_eq!(guest.word(result), 1281);
    });
}

/// Functions with the names of variadic ones: the sum of a count and as many words; and a function of the embedder's.
const VARIADIC: &str = r#"
  (func $sum (param $count i32) (param $rest i32) (result i32)
    (local $sum i32)
    (block $end
      (loop $next
        (br_if $end (i32.eqz (local.get $count)))
        (local.set $sum (i32.add (local.get $sum) (i32.load (local.get $rest))))
        (local.set $rest (i32.add (local.get $rest) (i32.const 4)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (local.get $sum))
  (func (export "printf") (param i32 i32) (result i32) local.get 0 local.get 1 call $sum)
  (func (export "embedders") (param i32 i32) (result i32) local.get 0 local.get 1 call $sum i32.const 1 i32.add)
  (func (export "ordinary") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add)"#;

/// The address where [`FOREIGN_CALLS`] writes its reports, each as its length and text.
const REPORT: u32 = 4096;

const FOREIGN_CALLS: ForeignCalls = ForeignCalls {
    variadic: &["embedders", "not a function of this program"],
    report: |guest, what| {
        let mut memory = guest.memory()?;
        let length = u32::try_from(what.len())?;
        assert!(memory.write_u32(REPORT, length).is_ok() && memory.write(REPORT + 4, what.as_bytes()).is_ok());
        Ok(())
    },
};

fn variadic_guest() -> Guest {
    let guest = Guest::start(&module(IMPORTS, &format!("{BODY}{VARIADIC}")), &["ffi_call", "stack"], &[]);
    guest.instance.program().set_foreign_calls(FOREIGN_CALLS);
    guest
}

impl Guest {
    fn slot(&self, name: &str) -> u32 {
        match self.instance.program().symbols().unwrap().0[name] {
            Symbol::Function(slot) => slot,
            Symbol::Data(_) => panic!("{name} is not a function"),
        }
    }

    /// Calls a function with ints, all of which the description declares as fixed. Returns its result.
    fn call_with_ints(&mut self, name: &str, values: &[i32]) -> i32 {
        let int = self.simple(INT);
        let types = vec![int; values.len()];
        let cif = self.cif(int, &types, types.len());
        let bytes: Vec<[u8; 4]> = values.iter().map(|value| value.to_le_bytes()).collect();
        let values = self.values(&bytes.iter().map(|value| &value[..]).collect::<Vec<_>>());
        let result = self.put_words(&[77]);
        let slot = self.slot(name);
        self.ffi_call(cif, slot, result, values).unwrap();
        self.word(result).cast_signed()
    }

    fn take_report(&mut self) -> String {
        let length = self.word(REPORT);
        let mut memory = self.instance.memory();
        memory.write_u32(REPORT, 0).unwrap();
        String::from_utf8(memory.slice(REPORT + 4, length).unwrap().to_vec()).unwrap()
    }
}

#[test]
fn variadic_function_gets_undeclared_arguments_by_pointer() {
    on_guest_thread(|| {
        let mut guest = variadic_guest();
        let stack = guest.call::<u32>("stack", ());
        assert_eq!(guest.call_with_ints("printf", &[0]), 0);
        assert_eq!(guest.call_with_ints("printf", &[1, 20]), 20);
        assert_eq!(guest.call_with_ints("printf", &[3, 20, 300, 4000]), 4320);
        assert_eq!(guest.call_with_ints("embedders", &[2, 20, 300]), 321);
        assert_eq!(guest.call_with_ints("ordinary", &[2, 20]), 22);
        assert_eq!(guest.take_report(), "");
        assert_eq!(guest.call::<u32>("stack", ()), stack);
    });
}

#[test]
fn invalid_foreign_calls_are_reported_and_the_program_continues() {
    on_guest_thread(|| {
        let mut guest = variadic_guest();
        for (name, arguments) in [("ordinary", &[1][..]), ("ordinary", &[1, 2, 3]), ("printf", &[])] {
            assert_eq!(guest.call_with_ints(name, arguments), 0, "the result is zeros");
            let report = guest.take_report();
            assert!(report.contains(&format!("function {name} has type")), "{report}");
        }
        let void = guest.simple(VOID);
        let cif = guest.cif(void, &[], 0);
        guest.ffi_call(cif, 0, 0, 0).unwrap();
        assert_eq!(guest.take_report(), "no function at 0x0");
        assert_eq!(guest.call_with_ints("ordinary", &[2, 20]), 22);
        // Without a description, or a place for the result, the program cannot continue.
        let int = guest.simple(INT);
        let cif = guest.cif(int, &[], 0);
        assert_refused(guest.ffi_call(cif, 0, u32::MAX - 1, 0), "no function at 0x0");
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
fn a_closure_is_called_with_its_arguments_and_user_data() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (_, code) = guest.times_ten(5);
        let stack = guest.call::<u32>("stack", ());
        assert_eq!(guest.call::<i32>("call_int", (code, 4)), 45);
        assert_eq!(guest.call::<i32>("call_int", (code, -4)), -35);
        assert_eq!(guest.call::<u32>("stack", ()), stack);
    });
}

#[test]
fn a_closure_takes_every_kind_of_argument() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (byte, double, pair, long) =
            (guest.simple(SINT8), guest.simple(DOUBLE), guest.pair(), guest.simple(SINT64));
        let cif = guest.cif(long, &[byte, double, pair, long], 4);
        let (closure, code) = guest.closure();
        assert_eq!(guest.call::<i32>("closure_prep", (closure, cif, WEIGH, 0, code)), 0);
        let pair = guest.put_words(&[3, 2000]);
        let sum = guest.call::<i64>("call_weigh", (code, -1, 500.5, pair, 7i64 << 33));
        assert_eq!(sum, -1 + 500 + 2000 + (7 << 33));
    });
}

#[test]
fn closure_can_be_called_through_libffi() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (_, code) = guest.times_ten(1);
        let int = guest.simple(INT);
        let cif = guest.cif(int, &[int], 1);
        let values = guest.values(&[&6i32.to_le_bytes()]);
        let result = guest.put_words(&[0]);
        guest.ffi_call(cif, code, result, values).unwrap();
        assert_eq!(guest.word(result), 61);
    });
}

#[test]
fn only_own_closures_are_freed_and_their_slots_reused() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (first, code) = guest.times_ten(1);
        let (_, other) = guest.times_ten(2);
        // Not closures: a forged one that names a function of the program, and one that names another closure's slot.
        for slot in [NOTHING, other] {
            let forged = guest.put_words(&[slot]);
            guest.call::<()>("closure_free", forged);
        }
        assert_eq!(guest.call::<i32>("call_int", (other, 1)), 12);

        guest.call::<()>("closure_free", first);
        guest.call::<()>("closure_free", first);
        let (_, again) = guest.times_ten(3);
        let (_, another) = guest.times_ten(4);
        assert_eq!(again, code);
        assert!(another != code && another != other, "freeing twice gives one slot");
        assert_eq!(guest.call::<i32>("call_int", (again, 1)), 13);
    });
}

#[test]
fn a_freed_closure_cannot_be_called() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (closure, code) = guest.times_ten(1);
        guest.call::<()>("closure_free", closure);
        assert!(matches!(guest.try_call::<i32>("call_int", (code, 1)), Err(InstanceError::Trapped(_))));
    });
}

#[test]
fn closure_cannot_be_prepared_in_a_foreign_slot() {
    on_guest_thread(|| {
        let mut guest = guest();
        let (closure, _) = guest.times_ten(1);
        let int = guest.simple(INT);
        let cif = guest.cif(int, &[int], 1);
        for code in [NOTHING, 1_000_000, u32::MAX] {
            assert_ne!(guest.call::<i32>("closure_prep", (closure, cif, TIMES_TEN, 0, code)), 0);
        }
        let variadic = guest.cif(int, &[int, int], 1);
        let (closure, code) = guest.closure();
        for cif in [variadic, u32::MAX] {
            assert_ne!(guest.call::<i32>("closure_prep", (closure, cif, TIMES_TEN, 0, code)), 0);
        }
    });
}

#[test]
fn overwriting_a_closure_description_ends_the_program() {
    on_guest_thread(|| {
        for (offset, value) in [(4, 3), (4, u32::MAX), (12, u32::MAX), (8, u32::MAX)] {
            let mut guest = guest();
            let int = guest.simple(INT);
            let cif = guest.cif(int, &[int], 1);
            let (closure, code) = guest.closure();
            assert_eq!(guest.call::<i32>("closure_prep", (closure, cif, TIMES_TEN, 0, code)), 0);
            guest.instance.memory().write_u32(cif + offset, value).unwrap();
            let result = guest.try_call::<i32>("call_int", (code, 1)).map(drop);
            assert_refused(result, "");
        }
    });
}

#[test]
fn closure_with_an_invalid_target_ends_the_program() {
    on_guest_thread(|| {
        for (target, why) in [(0, "no function"), (NOTHING, "not libffi's callback"), (u32::MAX, "not a function")] {
            let mut guest = guest();
            let int = guest.simple(INT);
            let cif = guest.cif(int, &[int], 1);
            let (closure, code) = guest.closure();
            assert_eq!(guest.call::<i32>("closure_prep", (closure, cif, target, 0, code)), 0);
            assert_refused(guest.try_call::<i32>("call_int", (code, 1)).map(drop), why);
        }
    });
}

#[test]
fn closures_can_be_created_and_freed_without_limit() {
    on_guest_thread(|| {
        let mut guest = guest();
        let int = guest.simple(INT);
        let cif = guest.cif(int, &[int], 1);
        let code = guest.put_words(&[0]);
        // More often than an instance may create host functions.
        for _ in 0..70_000 {
            let closure = guest.call::<u32>("closure_alloc", (4, code));
            let slot = guest.word(code);
            assert_eq!(guest.call::<i32>("closure_prep", (closure, cif, TIMES_TEN, 0, slot)), 0);
            guest.call::<()>("closure_free", closure);
        }
    });
}

#[test]
fn copy_has_the_closures_of_its_original() {
    on_guest_thread(|| {
        let mut original = guest();
        let (_, code) = original.times_ten(5);
        let (freed, free_slot) = original.times_ten(6);
        original.call::<()>("closure_free", freed);
        let mut copy = original.copy().unwrap();
        assert_eq!(copy.call::<i32>("call_int", (code, 4)), 45);
        let (_, again) = copy.times_ten(7);
        assert_eq!(again, free_slot);
        assert_eq!(copy.call::<i32>("call_int", (again, 4)), 47);
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
