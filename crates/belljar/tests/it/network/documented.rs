//! The commands of the examples in `docs/network.md`. The requests that they allow are checked in `belljar-network`.

use std::path::Path;

use crate::harness::Belljar;
use crate::network_servers::site;

/// Looks up a name that no example allows on this port.
const SCRIPT: &str = "import socket\ntry:\n    socket.getaddrinfo('never.invalid', 1)\n\
                      except PermissionError as error:\n    print(error)\n";

/// Returns a block of code of an example.
fn block<'a>(example: &'a str, start: &str) -> Option<&'a str> {
    let (_, rest) = example.split_once(start)?;
    rest.split_once("```").map(|(block, _)| block)
}

#[test]
fn documented_commands_start() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/network.md");
    let text = std::fs::read_to_string(document).unwrap();
    let (_, section) = text.split_once("\n## Ten examples\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let examples: Vec<&str> = section.split("\n### ").skip(1).collect();
    assert_eq!(examples.len(), 10);
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("script.py"), SCRIPT).unwrap();
        std::fs::copy(site().file("ca.crt"), folder.path().join("ca.pem")).unwrap();
        if let Some(policy) = block(example, "```toml\n") {
            std::fs::write(folder.path().join("policy.toml"), policy).unwrap();
        }
        let command = block(example, "```sh\n").unwrap();
        let mut words = command.split_whitespace().map(|word| word.trim_matches('\''));
        assert_eq!(words.next(), Some("belljar"), "{command}");
        let mut belljar = Belljar::new().directory(folder.path());
        for word in words {
            belljar = belljar.arg(word);
            if let Some((_, variable)) = word.split_once("=env:") {
                belljar = belljar.env(variable, "the-value-of-the-secret");
            }
        }
        let run = belljar.run();
        let refusal = "network access to never.invalid:1 is not allowed; allowed: ";
        assert!(run.status == Some(0) && run.stdout.contains(refusal), "{example}\n{run:?}");
    }
}
