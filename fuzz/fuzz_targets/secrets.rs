//! Takes a secret out of a stream that a server controls, in parts of any length. The text passed on never has the
//! secret, nor its hexadecimal, percent or base64 form, and is the same as if the stream had come at once.

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use belljar_network::{Scrubber, Secrets};
use libfuzzer_sys::fuzz_target;

const SECRET: &str = "s3cr3t-Value_0123456789";
const FORMS: [&str; 3] = [SECRET, "czNjcjN0LVZhbHVlXzAxMjM0NTY3ODk", "733363723374"];

/// A part of what a server sends.
#[derive(Debug, Arbitrary)]
enum Part<'a> {
    Bytes(&'a [u8]),
    /// A part of the secret, or of another form of it.
    Form {
        form: u8,
        begin: u8,
        length: u8,
    },
    /// A border between two reads.
    Border,
}

static SCRUBBER: LazyLock<Scrubber> = LazyLock::new(|| {
    let mut secrets = Secrets::with_key([7; 32]);
    secrets.add("TOKEN", &["example.org"], SECRET.to_owned()).expect("the secret is long enough");
    secrets.scrubber()
});

fuzz_target!(|parts: Vec<Part<'_>>| {
    let (mut stream, mut whole, mut passed) = (SCRUBBER.stream(), Vec::new(), Vec::new());
    let mut read = Vec::new();
    for part in parts.iter().take(200) {
        match part {
            Part::Bytes(bytes) => read.extend_from_slice(bytes),
            Part::Form { form, begin, length } => {
                let form = FORMS[usize::from(*form) % FORMS.len()];
                let begin = usize::from(*begin) % form.len();
                let end = (begin + usize::from(*length)).min(form.len());
                read.extend_from_slice(&form.as_bytes()[begin..end]);
            }
            Part::Border => {
                passed.extend(stream.push(&read));
                whole.append(&mut read);
            }
        }
    }
    passed.extend(stream.push(&read));
    whole.append(&mut read);
    passed.extend(stream.finish());
    let found = passed.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
    assert!(!found, "the secret was passed on");
    assert_eq!(passed, SCRUBBER.scrub(&whole).into_owned());
});
