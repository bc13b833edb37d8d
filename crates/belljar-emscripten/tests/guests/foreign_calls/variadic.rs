//! Calls of variadic functions, whether their description declares it or not, and reports of invalid calls.

use belljar_emscripten::ForeignCalls;
use belljar_emscripten::translate::Symbol;

use super::{BODY, DOUBLE, FLOAT, IMPORTS, INT, SINT8, STRUCT, VA_SUM, VOID, assert_refused, guest};
use crate::guest::{Guest, module, on_guest_thread};

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
