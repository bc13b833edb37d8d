//! Reading of policies from JSON values. Errors name the key and the keys that exist.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::pattern::normal_name;
use super::rules::{Rule, TextPattern, check_transform};
use super::{Policy, PolicyError};

/// The most rules, patterns or headers in one list or object.
const MAX_ITEMS: usize = 1_000;

/// Reads a policy.
pub(super) fn read(value: &Value) -> Result<Policy, PolicyError> {
    let root = object(value, "the policy")?;
    check_keys(root, "the top level", &["allow", "subnets", "resolve"])?;
    let mut policy = Policy::none();
    policy.layer();
    match root.get("allow") {
        None => {}
        Some(Value::Array(patterns)) => {
            for pattern in patterns {
                policy.add(text(pattern, "allow")?, Vec::new())?;
            }
        }
        Some(Value::Object(hosts)) => {
            for (host, rules) in hosts {
                let key = format!("allow.{host}");
                let rules = match rules {
                    Value::Array(rules) => bounded(rules, &key)?.iter().map(|item| rule(item, &key)).collect(),
                    Value::Object(_) => rule(rules, &key).map(|rule| vec![rule]),
                    _ => Err(invalid(&key, "it is not a list of rules")),
                }?;
                policy.add(host, rules)?;
            }
        }
        Some(_) => return Err(invalid("allow", "it is neither a list of hosts nor a table of hosts and rules")),
    }
    if let Some(subnets) = root.get("subnets") {
        let subnets = object(subnets, "subnets")?;
        check_keys(subnets, "`subnets`", &["allow", "deny"])?;
        for pattern in texts(subnets.get("allow"), "subnets.allow")? {
            policy.add(pattern, Vec::new())?;
        }
        for net in texts(subnets.get("deny"), "subnets.deny")? {
            let net = subnet(net).ok_or_else(|| invalid("subnets.deny", &format!("`{net}` is not a subnet")))?;
            policy.layer().denied.push(net);
        }
    }
    if let Some(resolve) = root.get("resolve") {
        for (name, addresses) in object(resolve, "resolve")? {
            let key = format!("resolve.{name}");
            let name = normal_name(name).map_err(|reason| invalid(&key, &reason))?;
            for address in texts(Some(addresses), &key)? {
                let address: IpAddr =
                    address.parse().map_err(|_| invalid(&key, &format!("`{address}` is not an address")))?;
                policy.layer().resolve.push((name.clone(), address.to_canonical()));
            }
        }
    }
    Ok(policy)
}

fn subnet(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn rule(value: &Value, place: &str) -> Result<Rule, PolicyError> {
    let table = object(value, place)?;
    check_keys(table, &format!("a rule of `{place}`"), &["match", "transform"])?;
    let mut rule = Rule::default();
    if let Some(conditions) = table.get("match") {
        let key = format!("{place}.match");
        let conditions = object(conditions, &key)?;
        check_keys(conditions, &format!("`{key}`"), &["method", "path", "query", "headers"])?;
        for method in texts(conditions.get("method"), &format!("{key}.method"))? {
            if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-') {
                return Err(invalid(&format!("{key}.method"), &format!("`{method}` is not a method")));
            }
            rule.methods.push(method.to_ascii_uppercase());
        }
        for path in texts(conditions.get("path"), &format!("{key}.path"))? {
            let pattern = TextPattern::for_path(path).map_err(|reason| invalid(&format!("{key}.path"), &reason))?;
            rule.paths.push(pattern);
        }
        for (name, list) in [("query", &mut rule.query), ("headers", &mut rule.headers)] {
            let Some(patterns) = conditions.get(name) else { continue };
            let key = format!("{key}.{name}");
            for (parameter, pattern) in object(patterns, &key)? {
                let pattern = TextPattern::for_value(text(pattern, &key)?).map_err(|reason| invalid(&key, &reason))?;
                list.push((parameter.clone(), pattern));
            }
        }
        // A condition that is empty by mistake must not become one that is always true.
        for (name, is_empty) in [("method", rule.methods.is_empty()), ("path", rule.paths.is_empty())] {
            if conditions.contains_key(name) && is_empty {
                return Err(invalid(&format!("{key}.{name}"), "the list is empty"));
            }
        }
    }
    // Vercel's form has a list of transforms.
    let transforms = match table.get("transform") {
        None => &[][..],
        Some(Value::Array(list)) => bounded(list, place)?,
        Some(single) => std::slice::from_ref(single),
    };
    for transform in transforms {
        let key = format!("{place}.transform");
        let transform = object(transform, &key)?;
        check_keys(transform, &format!("`{key}`"), &["headers"])?;
        let Some(headers) = transform.get("headers") else { continue };
        for (name, value) in object(headers, &key)? {
            let value = text(value, &key)?;
            check_transform(name, value).map_err(|reason| invalid(&key, &reason))?;
            rule.transform.push((name.clone(), value.to_owned()));
        }
    }
    Ok(rule)
}

fn invalid(key: &str, reason: &str) -> PolicyError {
    PolicyError::Value { key: key.chars().take(300).collect(), reason: reason.chars().take(300).collect() }
}

fn check_keys(table: &Map<String, Value>, place: &str, known: &[&str]) -> Result<(), PolicyError> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(PolicyError::UnknownKey {
            key: key.chars().take(100).collect(),
            place: place.chars().take(300).collect(),
            known: known.join(", "),
        }),
    }
}

fn object<'a>(value: &'a Value, key: &str) -> Result<&'a Map<String, Value>, PolicyError> {
    let table = value.as_object().ok_or_else(|| invalid(key, "it is not a table"))?;
    if table.len() > MAX_ITEMS && key != "the policy" {
        return Err(invalid(key, &format!("more than {MAX_ITEMS} entries")));
    }
    Ok(table)
}

fn bounded<'a>(list: &'a [Value], key: &str) -> Result<&'a [Value], PolicyError> {
    if list.len() > MAX_ITEMS {
        return Err(invalid(key, &format!("more than {MAX_ITEMS} entries")));
    }
    Ok(list)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str, PolicyError> {
    value.as_str().ok_or_else(|| invalid(key, "it is not a text"))
}

/// Returns the texts of a value that is a text or a list of texts.
fn texts<'a>(value: Option<&'a Value>, key: &str) -> Result<Vec<&'a str>, PolicyError> {
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => bounded(list, key)?.iter().map(|item| text(item, key)).collect(),
        Some(single) => text(single, key).map(|text| vec![text]),
    }
}
