//! Support for tests of all crates.
//!
//! - [`Capability`]: features of the machine that not every machine has. A test that needs one is a [`trial`] of a test
//!   program without libtest's harness, since libtest cannot ignore a test at run time. Without the capability the test
//!   is reported as ignored, or fails if `BELLJAR_REQUIRE` names the capability.
//! - [`install`]: programs that tests install with npm and pip.
//! - [`free_port`]: ports for servers that cannot choose one themselves.
//! - [`shared_folder`]: a folder that all users of the machine can enter, on Linux.
//!
//! `BELLJAR_REQUIRE` is a list of capabilities, separated by commas: `native-sandbox,node`. `all` is every capability,
//! and a name after `-` is an exception: `all,-browser`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod capability;
pub mod install;
mod os;
mod ports;
mod required;
mod trial;

pub use capability::{Capability, container_program, node, require};
pub use libtest_mimic::{Failed, Trial};
pub use os::shared_folder;
pub use ports::{free_port, free_ports};
pub use trial::{main, run, test_name, trial, trial_result};
