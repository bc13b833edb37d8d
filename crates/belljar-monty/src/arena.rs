//! The checks of values that the parent sends: indexes, identities, and kinds that only workers send.

use std::collections::BTreeMap;

use crate::proto::{Arena, Kind, Module, MontyNode, NodePairs, Type, Uuid};

/// The error of an instance without a class.
const NOT_A_CLASS: &str = "an instance has a class that is not a type";

/// Checks that each node refers only to nodes before it, which rules out cycles, and that `roots` exist.
///
/// # Errors
/// Returns the reason why the values are refused.
pub(crate) fn check(arena: Option<&Arena>, roots: impl IntoIterator<Item = u32>) -> Result<(), String> {
    let nodes = arena.map_or(&[][..], |arena| &arena.nodes);
    for (at, node) in nodes.iter().enumerate() {
        check_node(&nodes[..at], node).map_err(|reason| format!("value {at}: {reason}"))?;
    }
    match roots.into_iter().find(|root| *root as usize >= nodes.len()) {
        Some(root) => Err(format!("the request refers to value {root}, and has {}", nodes.len())),
        None => Ok(()),
    }
}

fn check_node(before: &[MontyNode], node: &MontyNode) -> Result<(), String> {
    let children = |items: &[u32]| match items.iter().find(|item| **item as usize >= before.len()) {
        Some(item) => Err(format!("it refers to value {item}, which does not come before it")),
        None => Ok(()),
    };
    let pairs = |pairs: &NodePairs| pairs.pairs.iter().try_for_each(|pair| children(&[pair.key, pair.value]));
    let attributes = |attrs: &Option<NodePairs>| attrs.as_ref().map_or(Ok(()), pairs);
    match node.kind.as_ref().ok_or("its kind is missing or unknown")? {
        Kind::List(items) | Kind::Tuple(items) | Kind::Set(items) | Kind::FrozenSet(items) => children(&items.items),
        Kind::Dict(entries) => pairs(entries),
        Kind::NamedTuple(tuple) if tuple.field_names.len() != tuple.values.len() => {
            Err("a named tuple has another number of names than of values".into())
        }
        Kind::NamedTuple(tuple) => children(&tuple.values),
        Kind::Type(kind) => {
            match (kind.origin, &kind.id) {
                (1, None) => {}
                (2 | 3, Some(id)) => check_identity(Some(id))?,
                _ => return Err("a type has no valid origin".into()),
            }
            attributes(&kind.attrs)
        }
        Kind::ClassInstance(instance) => {
            check_identity(instance.instance_id.as_ref())?;
            children(&[instance.class_type])?;
            let class = before.get(instance.class_type as usize).and_then(|node| node.kind.as_ref());
            if !matches!(class, Some(Kind::Type(kind)) if kind.origin != 1) {
                return Err(NOT_A_CLASS.into());
            }
            attributes(&instance.attrs)
        }
        Kind::Module(module) => {
            check_identity(module.id.as_ref())?;
            attributes(&module.attrs)
        }
        Kind::Repr(_) | Kind::Cycle(_) | Kind::Uuid(_) => Err("a value of its kind cannot be passed to code".into()),
        _ => Ok(()),
    }
}

fn check_identity(id: Option<&Uuid>) -> Result<(), String> {
    match id {
        Some(id) if id.data.len() == 16 => Ok(()),
        _ => Err("an identity does not have 16 bytes".into()),
    }
}

/// Returns the values that `root` contains, with its new index. `left` is the number of values that may be copied.
///
/// # Errors
/// Fails if the root does not exist, or there are more values.
pub(crate) fn extract(arena: &Arena, root: u32, left: &mut usize) -> Result<(u32, Arena), String> {
    if root as usize >= arena.nodes.len() {
        return Err(format!("the request refers to value {root}, and has {}", arena.nodes.len()));
    }
    // Children come before their containers, so that one pass from the root down finds all of them.
    let mut indexes: BTreeMap<u32, u32> = BTreeMap::from([(root, 0)]);
    let mut next = Some(root);
    while let Some(at) = next {
        if let Some(node) = arena.nodes.get(at as usize) {
            for_children(&mut node.clone(), &mut |child| {
                indexes.insert(*child, 0);
            });
        }
        if indexes.len() > *left {
            return Err("the results contain too many values".into());
        }
        next = indexes.range(..at).next_back().map(|(index, _)| *index);
    }
    *left -= indexes.len();
    for (new, index) in (0..).zip(indexes.values_mut()) {
        *index = new;
    }
    let nodes = indexes.keys().filter_map(|at| arena.nodes.get(*at as usize)).map(|node| {
        let mut node = node.clone();
        for_children(&mut node, &mut |child| *child = indexes.get(child).copied().unwrap_or_default());
        node
    });
    let nodes: Vec<_> = nodes.collect();
    Ok((indexes.get(&root).copied().unwrap_or_default(), Arena { node_count: 0, nodes }))
}

/// Calls a function with each index in a node.
fn for_children(node: &mut MontyNode, act: &mut impl FnMut(&mut u32)) {
    let pairs = |pairs: &mut NodePairs, act: &mut dyn FnMut(&mut u32)| {
        for pair in &mut pairs.pairs {
            act(&mut pair.key);
            act(&mut pair.value);
        }
    };
    match &mut node.kind {
        Some(Kind::List(items) | Kind::Tuple(items) | Kind::Set(items) | Kind::FrozenSet(items)) => {
            items.items.iter_mut().for_each(act);
        }
        Some(Kind::NamedTuple(tuple)) => tuple.values.iter_mut().for_each(act),
        Some(Kind::Dict(entries)) => pairs(entries, act),
        Some(Kind::ClassInstance(instance)) => {
            act(&mut instance.class_type);
            if let Some(attrs) = &mut instance.attrs {
                pairs(attrs, act);
            }
        }
        Some(Kind::Type(Type { attrs: Some(attrs), .. }) | Kind::Module(Module { attrs: Some(attrs), .. })) => {
            pairs(attrs, act);
        }
        _ => {}
    }
}
