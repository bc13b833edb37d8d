//! Reads the `dylink.0` section, in which a module declares its requirements to the dynamic linker.
//!
//! The format: <https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md>.

use wasmparser::{Dylink0SectionReader, Dylink0Subsection, KnownCustom, Parser, Payload, SymbolFlags};

use super::{Dylink, TranslateError};

/// Returns the `dylink.0` section of a module; `None` if it has none.
///
/// Only the start of the module is read, and only this section is checked: the linker convention requires it before all
/// other sections. A main module built with `-sMAIN_MODULE` has one too; see
/// [`Translated::dylink`](super::Translated::dylink).
///
/// # Errors
///
/// Fails with [`TranslateError::Invalid`] if `wasm` is not a module or the section is truncated, and with
/// [`TranslateError::Dylink`] if it contains an impossible alignment.
pub fn parse_dylink(wasm: &[u8]) -> Result<Option<Dylink>, TranslateError> {
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::Version { .. } => {}
            Payload::CustomSection(section) => {
                if let KnownCustom::Dylink0(reader) = section.as_known() {
                    return read(reader).map(Some);
                }
            }
            _ => break,
        }
    }
    Ok(None)
}

fn read(reader: Dylink0SectionReader<'_>) -> Result<Dylink, TranslateError> {
    let mut dylink = Dylink { memory_align: 1, table_align: 1, ..Dylink::default() };
    for subsection in reader {
        match subsection? {
            Dylink0Subsection::MemInfo(info) => {
                dylink.memory_size = info.memory_size;
                dylink.memory_align = bytes_of_alignment(info.memory_alignment)?;
                dylink.table_size = info.table_size;
                dylink.table_align = bytes_of_alignment(info.table_alignment)?;
            }
            Dylink0Subsection::Needed(names) => dylink.needed.extend(names.into_iter().map(String::from)),
            Dylink0Subsection::ExportInfo(exports) => {
                let tls = exports.into_iter().filter(|export| export.flags.contains(SymbolFlags::TLS));
                dylink.tls.extend(tls.map(|export| export.name.to_owned()));
            }
            Dylink0Subsection::ImportInfo(imports) => {
                let weak = imports.into_iter().filter(|import| import.flags.contains(SymbolFlags::BINDING_WEAK));
                dylink.weak.extend(weak.map(|import| import.field.to_owned()));
            }
            Dylink0Subsection::RuntimePath(paths) => dylink.runtime_path.extend(paths.into_iter().map(String::from)),
            // The convention: linkers skip unknown subsections.
            Dylink0Subsection::Unknown { .. } => {}
        }
    }
    Ok(dylink)
}

/// Converts an alignment from the power of two in the section to bytes.
fn bytes_of_alignment(power: u32) -> Result<u32, TranslateError> {
    1u32.checked_shl(power).ok_or(TranslateError::Dylink("alignment beyond 2^31"))
}
