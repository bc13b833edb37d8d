//! Several installers at once on one cache.

use belljar_core::progress::NoProgress;

use crate::support::{Bench, request};

#[test]
fn two_installers_and_many_threads_on_one_cache_get_the_same_files() {
    let one = Bench::new();
    let other = Bench::with_cache(one.cache.path(), |_| {});
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
