//! Encodes `src/helpers.wat`, so that the program does not contain a parser of WebAssembly's text format.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/helpers.wat");
    let module = wat::parse_file("src/helpers.wat")?;
    let directory = std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?;
    std::fs::write(Path::new(&directory).join("helpers.wasm"), module)?;
    Ok(())
}
