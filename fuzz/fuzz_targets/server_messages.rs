//! Parses the messages of an MCP server: lines of its standard output, and the data of events. White space around a
//! message changes nothing.

#![no_main]

use belljar_mcp_client::transport::parse_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|byte| *byte == b'\n') {
        let is_message = parse_message(line);
        let spaced = [&b" \t"[..], line, b"\r"].concat();
        assert_eq!(parse_message(&spaced), is_message);
    }
});
