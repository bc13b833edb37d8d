//! Programs that hold their thread while they wait have the same output in one server, and in many that are killed.

use super::super::durable_programs::check_programs;
use super::generator::program;

/// The number of programs, unless `BELLJAR_REPLAYED_PROGRAMS` has another one.
const PROGRAMS: u64 = 15;

in_both_isolations! {
    programs_have_the_same_output_when_they_are_replayed
}

fn programs_have_the_same_output_when_they_are_replayed(isolation: &str) {
    let programs = std::env::var("BELLJAR_REPLAYED_PROGRAMS").map_or(PROGRAMS, |number| number.parse().unwrap());
    check_programs(programs, &["--isolation", isolation], program);
}
