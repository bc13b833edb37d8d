//! Tests of several installers that share a cache.

use belljar_core::NoProgress;

use crate::support::{Fixture, request};

#[test]
fn concurrent_installers_on_one_cache_get_the_same_files() {
    let one = Fixture::new();
    let other = Fixture::with_cache(one.cache.path(), |_| {});
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|index| {
                let installer = if index % 2 == 0 { &one.installer } else { &other.installer };
                scope.spawn(move || installer.install(&request(&["attrs", "six", "networkx"]), &NoProgress).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for result in &results {
        assert_eq!(result, &results[0]);
    }
    for wheel in &results[0].1 {
        wheel.unpack().unwrap();
    }
}
