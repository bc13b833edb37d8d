//! Round trips of values through both of their forms.

use proptest::prelude::*;
use prost::Message as _;

use super::*;

/// Returns a node whose children are among the first `before`.
fn node(before: u32) -> BoxedStrategy<MontyNode> {
    let child = 0..before.max(1);
    let children = proptest::collection::vec(child.clone(), 0..4);
    let pairs = proptest::collection::vec((child.clone(), child.clone()), 0..4)
        .prop_map(|pairs| NodePairs { pairs: pairs.into_iter().map(NodePair::from).collect() });
    let id = any::<[u8; 16]>().prop_map(|data| Some(Uuid { data: data.to_vec() }));
    let leaf = prop_oneof![
        Just(Kind::None(Unit {})),
        any::<bool>().prop_map(Kind::Boolean),
        any::<i64>().prop_map(Kind::Int),
        any::<f64>().prop_map(Kind::Float),
        any::<String>().prop_map(Kind::Str),
        any::<Vec<u8>>().prop_map(Kind::Bytes),
        (any::<bool>(), any::<Vec<u8>>())
            .prop_map(|(negative, magnitude)| Kind::Bigint(BigInt { negative, magnitude })),
        (any::<f64>(), any::<f64>())
            .prop_map(|(real, imag)| Kind::Complex(Complex { real: Some(real), imag: Some(imag) })),
        (any::<String>(), any::<Option<String>>())
            .prop_map(|(exc_type, arg)| Kind::Exception(Exception { exc_type, arg })),
        (any::<i32>(), any::<Option<String>>())
            .prop_map(|(offset_seconds, name)| Kind::Timezone(TimeZone { offset_seconds, name })),
        (any::<String>(), any::<Option<String>>())
            .prop_map(|(name, docstring)| Kind::Function(Function { name, docstring })),
    ];
    let container = prop_oneof![
        children.clone().prop_map(|items| Kind::List(Indexes { items })),
        children.prop_map(|items| Kind::FrozenSet(Indexes { items })),
        pairs.clone().prop_map(Kind::Dict),
        (child, id.clone(), pairs.clone()).prop_map(|(class_type, instance_id, attrs)| {
            Kind::ClassInstance(ClassInstance { class_type, instance_id, attrs: Some(attrs) })
        }),
        (any::<String>(), id, pairs).prop_map(|(name, id, attrs)| {
            Kind::Type(Type { name, id, origin: 3, is_dataclass: true, attrs: Some(attrs) })
        }),
    ];
    prop_oneof![leaf, container].prop_map(|kind| MontyNode { kind: Some(kind) }).boxed()
}

fn arena() -> impl Strategy<Value = Arena> {
    (1_u32..8).prop_flat_map(|count| {
        let nodes: Vec<_> = (0..count).map(node).collect();
        nodes.prop_map(|nodes| Arena { node_count: 0, nodes })
    })
}

/// Returns a form in which values that are not a number are equal.
fn bits(arena: &Arena) -> Vec<u8> {
    arena.encode_to_vec()
}

proptest! {
    #[test]
    fn values_survive_the_wire(arena in arena()) {
        let decoded = Arena::decode(&bits(&arena)[..]).unwrap();
        prop_assert_eq!(bits(&decoded), bits(&arena));
    }

    #[test]
    fn values_survive_json(arena in arena()) {
        let json = serde_json::to_string(&arena).unwrap();
        let decoded: Arena = serde_json::from_str(&json).unwrap();
        // JSON has one value that is not a number.
        let same = |arena: &Arena| format!("{arena:?}");
        prop_assert_eq!(same(&decoded), same(&arena));
    }

    #[test]
    fn arbitrary_bytes_are_no_panic(bytes in any::<Vec<u8>>()) {
        let _ = crate::budget::decode(&bytes);
    }

    #[test]
    fn extracted_values_are_valid(arena in arena(), root in 0_u32..8) {
        let mut left = 100;
        if let Ok((root, own)) = crate::arena::extract(&arena, root, &mut left)
            && crate::arena::check(Some(&arena), []).is_ok()
        {
            prop_assert!(crate::arena::check(Some(&own), [root]).is_ok());
        }
    }
}
