//! Checks `properties/wheels.rs`, as tests do with the stored corpus.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/wheels.rs"]
mod wheels;

fuzz_target!(|bytes: &[u8]| wheels::check(bytes));
