//! Native kernels, as sessions use them: real ones, in every shelter that stands on this machine.
//!
//! The program is its own sandbox launcher, so that it has a `main`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect by panicking")]

mod cells;
mod endings;
mod environments;
mod files;
mod harness;
mod packages;
mod questions;
mod rich;

use libtest_mimic::{Arguments, Trial};

pub(crate) fn main() {
    belljar_jupyter::sandbox::launch_if_asked();
    if let [_, part, folder] = std::env::args().collect::<Vec<_>>().as_slice()
        && part == environments::PART
    {
        return environments::make(folder);
    }
    let arguments = Arguments::from_args();
    let trials: Vec<Trial> = [
        cells::trials(),
        questions::trials(),
        rich::trials(),
        endings::trials(),
        files::trials(),
        packages::trials(),
        environments::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    harness::end();
    conclusion.exit();
}
