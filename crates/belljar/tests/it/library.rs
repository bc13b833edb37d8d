//! The library with the cache that all tests share, as a server uses it.

use std::sync::OnceLock;

use belljar_python::{Options, Python, on_guest_thread};

use crate::harness::{cache, release};

/// Returns a CPython that all tests of the process share.
pub(crate) fn python() -> &'static Python {
    static PYTHON: OnceLock<Python> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let options = Options { cache: Some(cache().into()), release: release(), ..Options::default() };
        on_guest_thread(|| Python::open(&options, &belljar_core::NoProgress)).unwrap().unwrap()
    })
}
