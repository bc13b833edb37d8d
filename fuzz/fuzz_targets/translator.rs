//! Translates modules as they come in wheels: valid ones that wasm-smith makes, and changed bytes of those. A module
//! may be refused, but a translation that succeeds is a valid module, and the same bytes give the same translation.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use belljar_emscripten::translate::{Options, parse_dylink, translate};
use libfuzzer_sys::fuzz_target;
use wasm_smith::{Config, Module};
use wasmparser::Validator;

/// An input of the fuzzer, before the module.
#[derive(Debug, Clone, Copy, Arbitrary)]
struct Settings {
    /// Replaces bytes: positions are taken modulo the module's length.
    changes: [(u32, u8); 4],
    /// The number of changes that are made.
    count: u8,
    safepoints: bool,
    inline: u8,
    reserved_slots: u8,
}

/// Modules with the features of Emscripten's, and small enough for many runs each second.
fn config() -> Config {
    Config {
        max_instructions: 200,
        max_funcs: 10,
        max_memories: 1,
        memory64_enabled: false,
        multi_value_enabled: true,
        gc_enabled: false,
        threads_enabled: false,
        exceptions_enabled: false,
        tail_call_enabled: true,
        ..Config::default()
    }
}

fn run(bytes: &[u8]) -> arbitrary::Result<()> {
    let mut input = Unstructured::new(bytes);
    let settings = Settings::arbitrary(&mut input)?;
    let mut wasm = Module::new(config(), &mut input)?.to_bytes();
    for (at, byte) in settings.changes.iter().take(usize::from(settings.count % 5)) {
        let at = *at as usize % wasm.len();
        wasm[at] = *byte;
    }
    let options = Options {
        safepoints: settings.safepoints,
        inline: usize::from(settings.inline),
        reserved_slots: u32::from(settings.reserved_slots),
        ..Options::default()
    };
    let _ = parse_dylink(&wasm);
    let Ok(translated) = translate(&wasm, &options) else { return Ok(()) };
    if let Err(error) = Validator::new().validate_all(&translated.wasm) {
        panic!("the translation is not valid: {error}");
    }
    let again = translate(&wasm, &options).expect("it was translated before");
    assert_eq!(translated.wasm, again.wasm);
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    // Too few bytes for a module are not interesting.
    let _ = run(bytes);
});
