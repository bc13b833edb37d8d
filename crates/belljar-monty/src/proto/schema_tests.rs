//! Compares the types with the schema in `proto/monty.proto`, in both directions.

use std::collections::BTreeSet;
use std::fmt::Debug;

use prost::Message;
use prost::bytes::BufMut as _;
use prost::encoding::{WireType, encode_key};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind as FieldKind, MessageDescriptor, ReflectMessage as _, Value,
};

use super::*;

/// The depth to which messages in samples have contents.
const DEPTH: usize = 3;

/// Returns a value of a field's type, whose text is not that of a value of another type.
fn sample(kind: &FieldKind, depth: usize) -> Value {
    match kind {
        FieldKind::Bool => Value::Bool(true),
        FieldKind::Int32 => Value::I32(-7_000_007),
        FieldKind::Int64 | FieldKind::Sint64 => Value::I64(-7_000_000_000_007),
        FieldKind::Uint32 => Value::U32(4_000_000_007),
        FieldKind::Uint64 => Value::U64(u64::MAX - 7),
        FieldKind::Double => Value::F64(-2.625),
        FieldKind::String => Value::String("a text".into()),
        FieldKind::Bytes => Value::Bytes(vec![7, 8, 250].into()),
        FieldKind::Enum(_) => Value::EnumNumber(2),
        FieldKind::Message(message) => Value::Message(filled(message, depth)),
        other => panic!("the schema has a field of the type {other:?}"),
    }
}

/// Returns a message with all fields, and the first alternative of each `oneof`.
fn filled(message: &MessageDescriptor, depth: usize) -> DynamicMessage {
    let mut filled = DynamicMessage::new(message.clone());
    if depth > 0 {
        for field in message.fields() {
            let is_first = |oneof: prost_reflect::OneofDescriptor| oneof.fields().next() == Some(field.clone());
            if field.containing_oneof().is_none_or(is_first) {
                set(&mut filled, &field, depth - 1);
            }
        }
    }
    filled
}

fn set(message: &mut DynamicMessage, field: &FieldDescriptor, depth: usize) {
    let value = sample(&field.kind(), depth);
    let value = if field.is_list() { Value::List(vec![value.clone(), value]) } else { value };
    message.set_field(field, value);
}

/// Returns what the text of a decoded field contains.
fn text(kind: &FieldKind) -> String {
    match sample(kind, 0) {
        Value::Bool(value) => value.to_string(),
        Value::I32(value) | Value::EnumNumber(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::String(value) => format!("{value:?}"),
        Value::Bytes(value) => format!("{:?}", &value[..]),
        Value::Message(value) => value.descriptor().name().to_owned(),
        other => panic!("{other:?}"),
    }
}

/// Returns the name of a field, or of the variant of an alternative.
fn name(field: &FieldDescriptor) -> String {
    if field.containing_oneof().is_none_or(|oneof| oneof.is_synthetic()) {
        return format!("{}:", field.name());
    }
    let words = field.name().split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    format!("{}(", words.collect::<String>())
}

fn encode_again<T: Message + Default + Debug>(bytes: &[u8]) -> (T, Vec<u8>) {
    let decoded = T::decode(bytes).unwrap();
    let encoded = decoded.encode_to_vec();
    (decoded, encoded)
}

fn compare<T: Message + Default + Debug>(schema: &MessageDescriptor) {
    for field in schema.fields() {
        let place = field.full_name();
        let mut message = DynamicMessage::new(schema.clone());
        set(&mut message, &field, DEPTH);
        let bytes = message.encode_to_vec();
        let (decoded, encoded) = encode_again::<T>(&bytes);
        assert_eq!(encoded, bytes, "{place}: {decoded:?}");
        let shown = format!("{decoded:?}");
        assert!(shown.contains(&name(&field)), "{place} has another name: {shown}");
        assert!(shown.contains(&text(&field.kind())), "{place} has another type: {shown}");

        // Whether a value of zero is written.
        let mut zero = Vec::new();
        let wire_type = match field.kind() {
            FieldKind::Double => WireType::SixtyFourBit,
            FieldKind::String | FieldKind::Bytes | FieldKind::Message(_) => WireType::LengthDelimited,
            _ => WireType::Varint,
        };
        encode_key(field.number(), wire_type, &mut zero);
        zero.put_bytes(0, if wire_type == WireType::SixtyFourBit { 8 } else { 1 });
        let message = DynamicMessage::decode(schema.clone(), &zero[..]).unwrap();
        assert_eq!(encode_again::<T>(&zero).1, message.encode_to_vec(), "the presence of {place}");
    }
    let numbers: BTreeSet<_> = schema.fields().map(|field| field.number()).collect();
    for number in (1..100).filter(|number| !numbers.contains(number)) {
        for (wire_type, content) in
            [(WireType::Varint, &[1_u8][..]), (WireType::SixtyFourBit, &[1; 8]), (WireType::LengthDelimited, b"\x01x")]
        {
            let mut unknown = Vec::new();
            encode_key(number, wire_type, &mut unknown);
            unknown.extend(content);
            let (decoded, encoded) = encode_again::<T>(&unknown);
            assert_eq!(encoded, b"", "{} has a field {number} without a schema: {decoded:?}", schema.name());
        }
    }
}

/// Compares the types that are named with the messages of these names. Returns the names.
macro_rules! compare_all {
    ($pool:expr, $($message:ident)*) => {{
        $(compare::<$message>(&$pool.get_message_by_name(concat!("monty.v1.", stringify!($message))).unwrap());)*
        BTreeSet::from([$(stringify!($message).to_owned()),*])
    }};
}

#[test]
fn types_are_the_messages_of_the_schema() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let files = protox::compile(["monty.proto"], [directory]).unwrap();
    let pool = DescriptorPool::from_file_descriptor_set(files).unwrap();
    let compared = compare_all!(
        pool,
        Unit Arena MontyNode Indexes NodePair NodePairs BigInt Complex NamedTuple Date DateTime Time TimeDelta TimeZone
        Exception FileHandle Uuid Type ClassInstance Module Function RaisedException StackFrame CodeLoc SourceRange
        ParentRequest Configure ResourceLimits OsPolicy LocalZone FixedDateTime SleepMode SystemSleep RandomSeed
        InstallDependencies Feed NamedRef ResumeCall ExtFunctionResult ResumeNameLookup ResumeFutures FutureResult Load
        AbortFeed ChildEvent Print PrintSegment FunctionCall OsCall TextWrite BytesWrite Open Mkdir Rename Getenv
        DateTimeNow Urandom TimeCall SleepCall Import NameLookup ResolveFutures Complete ErrorEvent DumpResult
        FatalError ShutdownDump
    );
    let declared: BTreeSet<_> = pool.all_messages().map(|message| message.name().to_owned()).collect();
    assert_eq!(compared, declared);
}
