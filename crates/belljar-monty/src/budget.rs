//! Bounds of requests before they are decoded: a message of few bytes can describe values that take much more memory.

use std::fmt;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use crate::proto::ParentRequest;

/// The maximum number of messages and texts in lists of a request.
const MAX_PARTS: usize = 2_000_000;

/// The error of a request that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadRequest(String);

impl fmt::Display for BadRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A type of messages that contain others.
struct Shape {
    /// The fields that contain messages, with their types.
    messages: &'static [(u32, &'static Shape)],
    /// The fields that are lists of texts.
    texts: &'static [u32],
}

const LEAF: Shape = Shape { messages: &[], texts: &[] };
const PAIRS: Shape = Shape { messages: &[(1, &LEAF)], texts: &[] };
const NAMED_TUPLE: Shape = Shape { messages: &[], texts: &[2] };
const TYPE: Shape = Shape { messages: &[(5, &PAIRS)], texts: &[] };
const OBJECT: Shape = Shape { messages: &[(3, &PAIRS)], texts: &[] };
const NODE: Shape =
    Shape { messages: &[(13, &NAMED_TUPLE), (14, &PAIRS), (23, &TYPE), (24, &OBJECT), (32, &OBJECT)], texts: &[] };
const ARENA: Shape = Shape { messages: &[(2, &NODE)], texts: &[] };
const EXCEPTION: Shape = Shape { messages: &[(3, &LEAF)], texts: &[] };
const RESULT: Shape = Shape { messages: &[(2, &EXCEPTION)], texts: &[] };
const FUTURE: Shape = Shape { messages: &[(2, &RESULT)], texts: &[] };
const REQUEST: Shape = Shape {
    messages: &[
        (2, &Shape { messages: &[], texts: &[1] }),
        (3, &Shape { messages: &[(2, &LEAF), (3, &ARENA)], texts: &[] }),
        (4, &Shape { messages: &[(2, &RESULT), (3, &ARENA)], texts: &[] }),
        (5, &Shape { messages: &[(1, &ARENA), (4, &EXCEPTION)], texts: &[] }),
        (6, &Shape { messages: &[(1, &FUTURE), (2, &ARENA)], texts: &[] }),
        (11, &Shape { messages: &[(1, &EXCEPTION)], texts: &[] }),
    ],
    texts: &[],
};

/// Decodes a request.
///
/// # Errors
/// Fails if the bytes are not a request, or describe too many values.
pub(crate) fn decode(bytes: &[u8]) -> Result<ParentRequest, BadRequest> {
    let mut left = MAX_PARTS;
    count(bytes, &REQUEST, &mut left)?;
    ParentRequest::decode(bytes).map_err(|error| damaged(&error))
}

fn damaged(error: &prost::DecodeError) -> BadRequest {
    BadRequest(format!("the request cannot be read: {error}"))
}

/// Counts the parts of a message. The shapes do not contain themselves, so that the depth is bounded.
fn count(mut bytes: &[u8], shape: &Shape, left: &mut usize) -> Result<(), BadRequest> {
    while !bytes.is_empty() {
        let (field, wire_type) = decode_key(&mut bytes).map_err(|error| damaged(&error))?;
        let inner = shape.messages.iter().find(|(number, _)| *number == field).map(|(_, shape)| *shape);
        if wire_type != WireType::LengthDelimited || (inner.is_none() && !shape.texts.contains(&field)) {
            skip_field(wire_type, field, &mut bytes, DecodeContext::default()).map_err(|error| damaged(&error))?;
            continue;
        }
        *left =
            left.checked_sub(1).ok_or_else(|| BadRequest(format!("the request has more than {MAX_PARTS} parts")))?;
        let length = decode_varint(&mut bytes).map_err(|error| damaged(&error))?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (content, rest) =
            bytes.split_at_checked(length).ok_or_else(|| BadRequest("the request ends within a field".into()))?;
        if let Some(shape) = inner {
            count(content, shape, left)?;
        }
        bytes = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Arena, Feed, MontyNode, Request};

    #[test]
    fn many_empty_nodes_are_refused() {
        let nodes = vec![MontyNode::default(); MAX_PARTS + 1];
        let feed = Feed { values: Some(Arena { node_count: 0, nodes }), ..Feed::default() };
        let request = ParentRequest { kind: Some(Request::Feed(feed)), trace_parent: None };
        let error = decode(&request.encode_to_vec()).unwrap_err();
        assert_eq!(error.to_string(), "the request has more than 2000000 parts");
    }

    #[test]
    fn bytes_that_are_no_request_are_refused() {
        for bytes in [&[0xff; 16][..], &[0x1a, 0x7f], &[0x1a, 0x02, 0x1a, 0x7f], &[0x0b]] {
            assert!(decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
