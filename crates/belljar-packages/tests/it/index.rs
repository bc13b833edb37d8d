//! Resolving and fetching from the real index.

use crate::support::Bench;

#[test]
fn pydantic_is_resolved_fetched_and_unpacked_with_its_compiled_core() {
    let bench = Bench::new();
    let (resolution, wheels) = bench.install(&["pydantic>=2"]).unwrap();
    let names: Vec<_> = resolution.pinned().iter().map(|pinned| pinned.name.as_str()).collect();
    assert_eq!(names, ["annotated-types", "pydantic", "pydantic-core", "typing-extensions", "typing-inspection"]);
    let core = wheels.iter().find(|wheel| wheel.name == "pydantic-core").unwrap();
    assert!(core.filename.ends_with("-cp314-cp314-pyemscripten_2026_0_wasm32.whl"), "{}", core.filename);
    let unpacked = core.unpack().unwrap();
    assert_eq!(unpacked.top_level, ["pydantic_core"]);
    assert_eq!(unpacked.files.iter().filter(|file| file.is_library).count(), 1);
}
