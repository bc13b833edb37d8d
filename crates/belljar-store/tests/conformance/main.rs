//! The same tests over each store and coordinator: memory, an S3 server of this process with and without failures,
//! moto, a server of Google's API, Azurite, and a cluster of three members of etcd.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod backends;
mod collecting;
mod counting;
mod etcd_cluster;
mod failures;
mod gcs_server;
mod ownership;
mod peer_links;
mod probing;
#[path = "../support/s3_server.rs"]
mod s3_server;
mod secured;
mod services;
mod sharing;
mod unreliable_link;

use std::process::ExitCode;

use belljar_testing::{Capability, Trial, trial};

use backends::Backend;

/// A test of the suite that all backends pass.
type Test = (&'static str, fn(Backend));

const SUITE: [Test; 16] = [
    ("the_probe_accepts_it", probing::the_probe_accepts_it),
    ("a_session_moves_with_its_state", ownership::a_session_moves_with_its_state),
    ("an_owned_session_is_elsewhere", ownership::an_owned_session_is_elsewhere),
    ("one_of_several_replicas_activates", ownership::one_of_several_replicas_activates),
    ("a_session_is_deleted_once", ownership::a_session_is_deleted_once),
    ("a_crashed_owner_is_replaced", ownership::a_crashed_owner_is_replaced),
    ("a_frozen_owner_cannot_commit", ownership::a_frozen_owner_cannot_commit),
    ("a_replica_that_has_left_is_replaced_at_once", ownership::a_replica_that_has_left_is_replaced_at_once),
    ("parts_are_appended_and_removed", ownership::parts_are_appended_and_removed),
    ("sessions_are_listed", ownership::sessions_are_listed),
    ("records_are_written_by_version", sharing::records_are_written_by_version),
    ("records_are_removed_by_version", sharing::records_are_removed_by_version),
    ("records_that_have_not_changed_are_read_once", sharing::records_that_have_not_changed_are_read_once),
    ("images_are_stored_once_and_collected", collecting::images_are_stored_once_and_collected),
    ("what_nothing_refers_to_is_collected", collecting::what_nothing_refers_to_is_collected),
    ("contents_without_a_record_are_collected", collecting::contents_without_a_record_are_collected),
];

fn main() -> ExitCode {
    belljar_testing::main(|| {
        let mut trials: Vec<Trial> = Vec::new();
        for kind in backends::ALL {
            for (name, test) in SUITE {
                trials.push(trial(format!("{}::{name}", kind.name()), kind.needs(), move || test(Backend::new(kind))));
            }
        }
        trials.extend(probing::trials());
        trials.extend(counting::trials());
        trials.extend(failures::trials());
        trials.extend(secured::trials());
        trials
    })
}

/// Runs a test.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

/// The capabilities of tests with etcd.
pub(crate) const ETCD: &[Capability] = &[Capability::Etcd];
