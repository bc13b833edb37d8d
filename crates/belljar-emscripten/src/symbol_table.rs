//! Removal of the symbol table from compiled modules.
//!
//! A compiled module is an ELF file for 64-bit processors. Wasmtime's compiler appends a table with the name of each
//! function, which only debuggers and profilers read: Wasmtime skips it when it loads the module. For CPython it takes
//! 7 % of the file.

use std::ops::Range;

/// The names of the sections that are emptied.
const REMOVED: [&[u8]; 2] = [b".symtab", b".strtab"];

/// The offset in the file header of the offset of the section headers.
const SECTION_HEADERS: usize = 0x28;
/// The offsets in the file header of the number of sections, and of the section that has their names.
const SECTION_COUNT: usize = 0x3c;
const NAMES_INDEX: usize = 0x3e;
/// The size of a section header, and the offsets in it of the section's name, type, offset, size and information.
const HEADER_SIZE: usize = 64;
const NAME: usize = 0;
const TYPE: usize = 4;
const OFFSET: usize = 0x18;
const SIZE: usize = 0x20;
const INFO: usize = 0x2c;
/// The type of sections that take no space in the file.
const NOBITS: u32 = 8;

/// Removes the symbol table. Wasmtime's compiler writes the table, its strings and the names of sections last. A file
/// with another layout is returned as it is.
pub(crate) fn remove(mut code: Vec<u8>) -> Vec<u8> {
    let Some((end, tail)) = shortened(&code) else { return code };
    let headers = end + tail.names;
    code.truncate(end);
    code.extend(tail.bytes);
    write(&mut code, SECTION_HEADERS, &(headers as u64).to_le_bytes());
    code
}

/// The part of a file after the contents of its sections.
struct Tail {
    /// The names of the sections, and the section headers.
    bytes: Vec<u8>,
    /// The size of the names, with padding.
    names: usize,
}

/// Returns where the contents of the remaining sections end, and what follows them.
fn shortened(code: &[u8]) -> Option<(usize, Tail)> {
    let start = usize::try_from(u64_at(code, SECTION_HEADERS)?).ok()?;
    let count = usize::from(u16_at(code, SECTION_COUNT)?);
    let names_index = usize::from(u16_at(code, NAMES_INDEX)?);
    let mut headers = code.get(start..start.checked_add(count.checked_mul(HEADER_SIZE)?)?)?.to_vec();
    let names = contents(headers.get(names_index.checked_mul(HEADER_SIZE)?..)?)?;
    let names = code.get(names)?;
    let is_removed = |header: &[u8]| {
        let name = names.get(usize::try_from(u32_at(header, NAME)?).ok()?..)?;
        Some(REMOVED.contains(&name.split(|byte| *byte == 0).next()?))
    };
    let (mut kept_end, mut removed) = (0, Vec::new());
    for (index, header) in headers.chunks_exact(HEADER_SIZE).enumerate() {
        if is_removed(header)? {
            removed.push((index, contents(header)?));
        } else if index != names_index && u32_at(header, TYPE)? != NOBITS {
            kept_end = kept_end.max(contents(header)?.end);
        }
    }
    let end = removed.iter().map(|(_, contents)| contents.start).min()?;
    if kept_end > end || end > code.len() {
        return None;
    }
    let mut bytes = names.to_vec();
    // Section headers are aligned to the size of their largest field.
    bytes.resize((end + names.len()).next_multiple_of(size_of::<u64>()) - end, 0);
    let names = bytes.len();
    write(&mut headers, names_index * HEADER_SIZE + OFFSET, &(end as u64).to_le_bytes());
    for (index, _) in removed {
        let header = index * HEADER_SIZE;
        write(&mut headers, header + OFFSET, &(end as u64).to_le_bytes());
        write(&mut headers, header + SIZE, &0u64.to_le_bytes());
        write(&mut headers, header + INFO, &0u32.to_le_bytes());
    }
    bytes.extend(headers);
    Some((end, Tail { bytes, names }))
}

/// Returns where in the file the contents of a section are.
fn contents(header: &[u8]) -> Option<Range<usize>> {
    let start = usize::try_from(u64_at(header, OFFSET)?).ok()?;
    let size = usize::try_from(u64_at(header, SIZE)?).ok()?;
    Some(start..start.checked_add(size)?)
}

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Writes a field that is known to be within `bytes`.
fn write(bytes: &mut [u8], offset: usize, field: &[u8]) {
    bytes[offset..offset + field.len()].copy_from_slice(field);
}

#[cfg(test)]
mod tests {
    use wasmtime::{Engine, Instance, Module, Store};

    use super::remove;

    const MODULE: &str = r#"(module
        (func $a_function_with_a_long_name (param i32) (result i32) (i32.mul (local.get 0) (i32.const 7)))
        (func (export "run") (param i32) (result i32) (call $a_function_with_a_long_name (local.get 0))))"#;

    #[test]
    fn code_without_symbols_is_loaded_and_runs() {
        let engine = Engine::default();
        let code = engine.precompile_module(&wat::parse_str(MODULE).unwrap()).unwrap();
        let smaller = remove(code.clone());
        let contains = |code: &[u8]| code.windows(10).filter(|window| *window == b"a_function").count();
        assert!(smaller.len() < code.len());
        assert!(contains(&smaller) < contains(&code));
        // SAFETY: the bytes are the output of this engine's compiler, without sections that are not loaded.
        let module = unsafe { Module::deserialize(&engine, &smaller) }.unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<i32, i32>(&mut store, "run").unwrap();
        assert_eq!(run.call(&mut store, 6).unwrap(), 42);
    }

    #[test]
    fn removing_symbols_twice_changes_nothing() {
        let engine = Engine::default();
        let once = remove(engine.precompile_module(&wat::parse_str(MODULE).unwrap()).unwrap());
        assert!(remove(once.clone()) == once);
    }

    #[test]
    fn other_files_are_returned_as_they_are() {
        let engine = Engine::default();
        let code = engine.precompile_module(&wat::parse_str(MODULE).unwrap()).unwrap();
        for length in (0..code.len()).step_by(97) {
            assert!(remove(code[..length].to_vec()) == code[..length]);
        }
        assert!(remove(vec![0xff; 4096]) == [0xff; 4096]);
    }
}
