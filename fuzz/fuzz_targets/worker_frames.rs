//! Checks `properties/worker_frames.rs`, as tests do with the stored corpus.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../properties/worker_frames.rs"]
mod worker_frames;

fuzz_target!(|bytes: &[u8]| worker_frames::check(bytes));
