//! Checks `properties/messages.rs`, as tests do with the stored corpus.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/messages.rs"]
mod messages;

fuzz_target!(|bytes: &[u8]| messages::check(bytes));
