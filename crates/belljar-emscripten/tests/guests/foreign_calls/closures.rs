//! Closures: function pointers that pass their calls to a function of the program, and hostile uses of them.

use belljar_emscripten::InstanceError;

use super::{DOUBLE, INT, NOTHING, SINT8, SINT64, TIMES_TEN, WEIGH, assert_refused, guest};
use crate::guest::{Guest, on_guest_thread};

impl Guest {
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
