//! Dynamic linking as Emscripten does it: `dlopen` of side modules.
use crate::fs::Filesystem;
use crate::host::Host;
use crate::instance::InstanceError;
use crate::program::Program;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use wasmtime::Store;
/// x
pub trait Libraries: Send + Sync {}
/// x
pub struct Library {}
/// x
#[derive(Serialize, Deserialize)]
pub(crate) struct LinkImage {}
/// The libraries that one instance has loaded.
#[derive(Default)]
pub(crate) struct Linked {}
impl Linked {
    pub(crate) fn new(_: &Program) -> Self {
        Self {}
    }
}
pub(crate) fn capture(_: &mut Store<Host>) -> Result<LinkImage, InstanceError> {
    Ok(LinkImage {})
}
pub(crate) fn restore(_: &mut Store<Host>, _: &LinkImage, _: &[Arc<Library>]) -> Result<(), InstanceError> {
    Ok(())
}
pub(crate) fn libraries_of(_: &LinkImage, _: &Filesystem, _: &Program) -> Result<Vec<Arc<Library>>, InstanceError> {
    Ok(vec![])
}
pub(crate) fn main_function(_: &mut wasmtime::StoreContextMut<'_, Host>, _: &str) -> Option<wasmtime::Func> {
    None
}
pub(crate) fn define(_: &mut wasmtime::Linker<Host>) -> wasmtime::Result<()> {
    Ok(())
}
