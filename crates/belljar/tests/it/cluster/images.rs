//! Sessions that continue in replicas with other images.

use super::{Client, Shared};
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::sessions::durable::{kill, open, run};

in_both_isolations! {
    session_continues_in_a_replica_that_lacks_its_image
}

fn session_continues_in_a_replica_that_lacks_its_image(isolation: &str) {
    let options = ["--isolation", isolation];
    let shared = Shared::new();
    let cache = tempfile::tempdir().unwrap();
    crate::packages::copy_parts(cache.path());
    let constraints = cache.path().join("constraints.txt");
    std::fs::write(&constraints, "ipython==9.1.0\n").unwrap();
    let earlier = Belljar::with_cache(cache.path()).env("UV_CONSTRAINT", &constraints);
    let mut one = shared.wire(earlier, &options);
    let session = open(&mut one);
    run(&mut one, &session, "import IPython\nx = [1]");
    // It does not give its sessions up.
    kill(one);
    drop(cache);
    for value in ["[1]", "[1, 2]"] {
        let mut two = shared.wire(Belljar::new(), &options);
        let answer = run(&mut two, &session, "(IPython.__version__, x)");
        assert_eq!(answer["result"], format!("('9.1.0', {value})"), "{answer:#}");
        run(&mut two, &session, "x = [1, 2]");
        kill(two);
    }
}

#[test]
fn session_moves_between_replicas_with_caches_of_their_own() {
    let shared = Shared::new();
    let caches = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    caches.iter().for_each(|cache| crate::packages::copy_parts(cache.path()));
    let options = ["--port", "0", "--toolset", "interpreter"];
    let replicas = caches.each_ref().map(|cache| {
        let belljar = Belljar::with_cache(cache.path()).arg("streamable-http").args(options);
        Listening::spawn(shared.with_store(belljar))
    });
    // Two MCP sessions: the kernel session moves to the replica of the one that uses it.
    let clients = replicas.each_ref().map(Client::new);
    let opened = clients[0].cell(&replicas[0], None, "x = 0");
    let session = opened["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{opened:#}")).to_owned();
    for number in 1..=100 {
        let other = number % 2;
        let answer = clients[other].cell(&replicas[other], Some(&session), "x += 1\nx");
        assert_eq!(answer["result"], number.to_string(), "{answer:#}");
    }
}
