//! The examples of `docs/network.md`: each list of requests holds for its policy.

use super::*;
use crate::secrets::Secrets;

/// One example.
struct Example {
    title: String,
    /// The content of the policy file.
    file: Option<String>,
    /// The words of the command.
    command: Vec<String>,
    allowed: Vec<String>,
    refused: Vec<String>,
}

fn examples() -> Vec<Example> {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/network.md");
    let text = std::fs::read_to_string(document).unwrap();
    let (_, section) = text.split_once("\n## Ten examples\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    section.split("\n### ").skip(1).map(example).collect()
}

fn example(text: &str) -> Example {
    let title = text.lines().next().unwrap().to_owned();
    let block = |language: &str| {
        let (_, rest) = text.split_once(&format!("```{language}\n"))?;
        rest.split_once("```").map(|(block, _)| block.to_owned())
    };
    let command = block("sh").unwrap().split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect();
    let (_, lists) = text.split_once("\nAllowed: ").unwrap();
    let (allowed, refused) = lists.split_once("Refused: ").unwrap();
    let items = |list: &str| list.split('`').skip(1).step_by(2).map(|item| item.replace('\n', " ")).collect();
    Example { title, file: block("toml"), command, allowed: items(allowed), refused: items(refused) }
}

impl Example {
    fn values<'a>(&'a self, option: &'a str) -> impl Iterator<Item = &'a String> {
        let after = self.command.iter().skip(1);
        self.command.iter().zip(after).filter(move |(word, _)| *word == option).map(|(_, value)| value)
    }

    /// Returns the policy that the command has.
    fn policy(&self) -> Policy {
        let is_named = self.values("--net-policy").any(|file| file == "policy.toml");
        assert_eq!(is_named, self.file.is_some(), "{}", self.title);
        let mut policy = self.file.as_deref().map_or_else(Policy::none, |text| Policy::from_toml(text).unwrap());
        for pattern in self.values("--allow-net") {
            policy.allow(pattern).unwrap();
        }
        let mut secrets = Secrets::new();
        for secret in self.values("--secret") {
            secrets.add_specification(secret, |_| Ok("the-value-of-the-secret".to_owned())).unwrap();
        }
        secrets.check(&policy).unwrap();
        policy
    }
}

/// Decides on `host:port`, or on a method and the address of a resource.
fn is_allowed(policy: &Policy, item: &str) -> bool {
    let (method, authority, target, default) = match item.split_once(' ') {
        None => (None, item, "", 0),
        Some((method, url)) => {
            let (scheme, rest) = url.split_once("://").unwrap();
            let (authority, target) = rest.split_at(rest.find('/').unwrap());
            (Some(method), authority, target, if scheme == "https" { 443 } else { 80 })
        }
    };
    let (name, port) = match authority.split_once(':') {
        Some((name, port)) => (name, port.parse().unwrap()),
        None => (authority, default),
    };
    let host = Host::parse(name).unwrap();
    let addresses: Vec<IpAddr> = match &host {
        Host::Name(name) => policy.resolved(name),
        Host::Address(address) => vec![*address],
    };
    policy.allows(&host, Some(port))
        && addresses.iter().all(|address| policy.check_address(&host, *address, port).is_ok())
        && method.is_none_or(|method| policy.decide(&host, port, &RequestView { method, target, headers: &[] }).is_ok())
}

#[test]
fn documented_examples_allow_and_refuse_what_they_list() {
    let examples = examples();
    assert_eq!(examples.len(), 10);
    for example in &examples {
        let policy = example.policy();
        assert!(!example.allowed.is_empty() && !example.refused.is_empty(), "{}", example.title);
        for item in &example.allowed {
            assert!(is_allowed(&policy, item), "{}: {item} is refused", example.title);
        }
        for item in &example.refused {
            assert!(!is_allowed(&policy, item), "{}: {item} is allowed", example.title);
        }
    }
}
