//! The removal of secrets from text that reaches the code.

use std::borrow::Cow;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::encodings::forms;

/// The least bytes of the beginning of a secret that are held back although nothing follows. Fewer are released.
const MIN_PART: usize = 4;

/// The character that replaces each byte of a secret.
const MASK: u8 = b'*';

/// Replaces secrets by asterisks: their exact text, and its base64, hexadecimal, percent-encoded and escaped forms.
///
/// The length of the text stays. Other transformations of a secret are not found: parts of it, reversed or compressed
/// text, base64 with line breaks, several layers of encoding. If a server makes a pause within a secret, its first
/// three bytes may be delivered before the pause.
///
/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Scrubber {
    patterns: Option<Arc<Patterns>>,
}

#[derive(Debug)]
struct Patterns {
    automaton: AhoCorasick,
    /// The forms of all secrets, sorted.
    forms: Vec<Vec<u8>>,
    longest: usize,
    /// For each byte, true if a form begins with it.
    first: [bool; 256],
}

impl Scrubber {
    /// Creates a scrubber of these values.
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut all: Vec<Vec<u8>> = values.flat_map(forms).collect();
        all.sort();
        all.dedup();
        // Most networks have no secrets, and building an automaton takes a part of the start of a process.
        if all.is_empty() {
            return Self::default();
        }
        let mut first = [false; 256];
        for form in &all {
            if let Some(byte) = form.first() {
                first[usize::from(*byte)] = true;
            }
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&all);
        match automaton {
            Ok(automaton) => {
                let longest = all.iter().map(Vec::len).max().unwrap_or_default();
                Self { patterns: Some(Arc::new(Patterns { automaton, forms: all, longest, first })) }
            }
            Err(_) => Self::default(),
        }
    }

    /// Returns whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_none()
    }

    /// Returns the bytes without secrets, with the same length.
    pub fn scrub<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(patterns) = &self.patterns else { return Cow::Borrowed(bytes) };
        let mut scrubbed = Cow::Borrowed(bytes);
        for found in patterns.automaton.find_overlapping_iter(bytes) {
            if let Some(range) = scrubbed.to_mut().get_mut(found.range()) {
                range.fill(MASK);
            }
        }
        scrubbed
    }

    /// Returns the text without secrets, with the same number of bytes.
    pub fn scrub_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.scrub(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Forms are whole characters, so that the text stays valid.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Reads a part of a file, without secrets that are in it, begin before it or go on after it. `read` returns at
    /// most a number of bytes of the file from an offset on.
    ///
    /// # Errors
    /// The error of `read`.
    pub fn read_part<E>(
        &self,
        offset: u64,
        length: u64,
        read: impl FnOnce(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let overlap = self.patterns.as_ref().map_or(0, |patterns| patterns.longest.saturating_sub(1) as u64);
        let before = offset.min(overlap);
        let bytes = read(offset - before, before.saturating_add(length).saturating_add(overlap))?;
        let mut part = match self.scrub(&bytes) {
            Cow::Owned(scrubbed) => scrubbed,
            Cow::Borrowed(_) => bytes,
        };
        let start = usize::try_from(before).unwrap_or(usize::MAX).min(part.len());
        part.drain(..start);
        part.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(part)
    }

    /// Creates a scrubber of a stream.
    pub fn stream(&self) -> StreamScrubber {
        StreamScrubber {
            patterns: self.patterns.clone(),
            held: Vec::new(),
            masked: Vec::new(),
            released: 0,
            is_uniform: false,
            position: 0,
            reported: None,
        }
    }

    /// Creates a scrubber of what a server sends to the code. It holds back as many bytes whatever they are: code that
    /// has its guesses echoed would learn from the delay which of them are the beginning of a secret.
    pub(crate) fn uniform_stream(&self) -> StreamScrubber {
        StreamScrubber { is_uniform: true, ..self.stream() }
    }
}

/// A scrubber of a stream. It holds back the bytes at the end that may be the beginning of a secret.
#[derive(Debug)]
pub struct StreamScrubber {
    patterns: Option<Arc<Patterns>>,
    /// Bytes that may be the beginning of a form, as they arrived.
    held: Vec<u8>,
    /// Which of them are a part of a form that ended. Empty if none is.
    masked: Vec<bool>,
    /// How many of them were released already.
    released: usize,
    /// Bytes are held back whatever they are.
    is_uniform: bool,
    /// The number of bytes before the held ones.
    position: u64,
    /// The position of the last part that was reported.
    reported: Option<u64>,
}

/// The bytes that are released because nothing follows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Released {
    pub(crate) bytes: Vec<u8>,
    /// The beginning of a secret is still held back, and it is another one than before.
    pub(crate) is_new_part: bool,
}

impl StreamScrubber {
    /// Returns what can be released after these bytes.
    pub fn push(&mut self, data: &[u8]) -> Vec<u8> {
        let Some(patterns) = &self.patterns else { return data.to_vec() };
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(data);
        let mut masked = std::mem::take(&mut self.masked);
        if !masked.is_empty() {
            masked.resize(bytes.len(), false);
        }
        for found in patterns.automaton.find_overlapping_iter(&bytes) {
            masked.resize(bytes.len(), false);
            if let Some(range) = masked.get_mut(found.range()) {
                range.fill(true);
            }
        }
        let keep_from = if self.is_uniform {
            (bytes.len() + 1).saturating_sub(patterns.longest).min(bytes.len())
        } else {
            patterns.unfinished(&bytes)
        };
        let output = self.output(&bytes, &masked, keep_from);
        self.released = self.released.saturating_sub(keep_from);
        self.position += keep_from as u64;
        self.held = bytes.split_off(keep_from);
        masked.drain(..keep_from.min(masked.len()));
        self.masked = masked;
        if self.held.is_empty() {
            // Nothing takes memory while the stream is idle.
            self.held = Vec::new();
            self.masked = Vec::new();
        }
        output
    }

    /// Returns the bytes that were held back. Call it at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.held);
        let masked = std::mem::take(&mut self.masked);
        let output = self.output(&bytes, &masked, bytes.len());
        self.released = 0;
        output
    }

    /// Returns whether [`StreamScrubber::release`] has something to release or to report.
    pub(crate) fn is_holding(&self) -> bool {
        let end = self.releasable();
        end > self.released || self.is_new_part(end)
    }

    /// Releases the bytes that are held back, without an end that is the beginning of a secret. Call it if nothing
    /// follows for some time.
    ///
    /// The end of a message would otherwise not arrive before the next one, for which the server may wait in turn. The
    /// rest of a secret is still removed if it follows.
    pub(crate) fn release(&mut self) -> Released {
        let end = self.releasable();
        let bytes = self.output(&self.held, &self.masked, end);
        self.released = self.released.max(end);
        let is_new_part = self.is_new_part(end);
        if is_new_part {
            self.reported = Some(self.position + end as u64);
        }
        Released { bytes, is_new_part }
    }

    /// Returns whether a part begins there that was not reported. A part that goes on is the same one.
    fn is_new_part(&self, end: usize) -> bool {
        end < self.held.len() && self.reported != Some(self.position + end as u64)
    }

    /// Returns the length of the held bytes before an end that is the beginning of a secret.
    fn releasable(&self) -> usize {
        let Some(patterns) = &self.patterns else { return 0 };
        let is_part = |start: usize| {
            let tail = self.held.get(start..).unwrap_or_default();
            patterns.is_first(tail) && patterns.beginning_with(tail).any(|form| form.len() > tail.len())
        };
        let last = self.held.len().saturating_sub(MIN_PART - 1);
        (0..last).find(|start| is_part(*start)).unwrap_or(self.held.len())
    }

    /// Returns the bytes up to `end` that were not released yet, masked.
    fn output(&self, bytes: &[u8], masked: &[bool], end: usize) -> Vec<u8> {
        let start = self.released.min(end);
        let mut output = bytes.get(start..end).unwrap_or_default().to_vec();
        for (byte, is_masked) in output.iter_mut().zip(masked.get(start..).unwrap_or_default()) {
            if *is_masked {
                *byte = MASK;
            }
        }
        output
    }
}

impl Patterns {
    /// Returns the offset of the longest end of the bytes that is the beginning of a form, but not a whole one.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let earliest = (bytes.len() + 1).saturating_sub(self.longest);
        (earliest..bytes.len())
            .find(|start| {
                let tail = bytes.get(*start..).unwrap_or_default();
                self.is_first(tail) && self.beginning_with(tail).any(|form| form.len() > tail.len())
            })
            .unwrap_or(bytes.len())
    }

    /// Returns whether a form begins with the first of these bytes.
    fn is_first(&self, bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|byte| self.first[usize::from(*byte)])
    }

    /// Returns the forms that begin with these bytes.
    fn beginning_with(&self, bytes: &[u8]) -> impl Iterator<Item = &Vec<u8>> {
        let from = self.forms.partition_point(|form| form.as_slice() < bytes);
        self.forms.get(from..).unwrap_or_default().iter().take_while(move |form| form.starts_with(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "sk-prod/9f?8Z\"q & a~+ü";

    fn scrubber() -> Scrubber {
        Scrubber::new([SECRET, "hunter2hunter2"].into_iter())
    }

    #[test]
    fn every_form_is_masked_with_its_length() {
        for form in forms(SECRET) {
            let text = [b"<".as_slice(), &form, b">"].concat();
            let scrubbed = scrubber().scrub(&text).into_owned();
            assert_eq!(scrubbed, [b"<".as_slice(), &vec![b'*'; form.len()], b">"].concat());
        }
    }

    #[test]
    fn chunks_of_any_size_give_the_same_bytes() {
        let text: Vec<u8> = forms(SECRET)
            .iter()
            .flat_map(|form| [b" sk-prohunterhunter2hunter2hunter2 ", form.as_slice()].concat())
            .collect();
        let whole = scrubber().scrub(&text).into_owned();
        for size in 1..80 {
            let mut stream = scrubber().stream();
            let mut scrubbed: Vec<u8> = text.chunks(size).flat_map(|chunk| stream.push(chunk)).collect();
            scrubbed.extend(stream.finish());
            assert_eq!(scrubbed, whole, "chunks of {size}");
        }
    }

    #[test]
    fn parts_of_a_file_are_without_secrets_that_cross_their_ends() {
        let file = format!("{}{SECRET}{}", ".".repeat(100), ".".repeat(100)).into_bytes();
        let read = |offset: u64, length: u64| -> Result<Vec<u8>, u64> {
            let offset = usize::try_from(offset).unwrap();
            Ok(file[offset..].iter().copied().take(usize::try_from(length).unwrap()).collect())
        };
        let whole = scrubber().scrub(&file).into_owned();
        assert_ne!(whole, file);
        for size in [1, 7, 64, 110, 500] {
            let mut parts = Vec::new();
            while parts.len() < file.len() {
                parts.extend(scrubber().read_part(parts.len() as u64, size, read).unwrap());
            }
            assert_eq!(parts, whole, "parts of {size}");
        }
        assert_eq!(Scrubber::default().read_part(99, 3, read).unwrap(), file[99..102]);
        assert_eq!(scrubber().read_part(5, 1, |offset, _| Err::<Vec<u8>, u64>(offset)), Err(0));
    }

    #[test]
    fn only_a_possible_beginning_is_held_back() {
        let mut stream = scrubber().stream();
        assert_eq!(stream.push(b"text"), b"text");
        assert_eq!(stream.push(b"abc hun"), b"abc ");
        assert_eq!(stream.push(b"gry"), b"hungry");
        assert_eq!(stream.push(b"hunter2hunter2"), b"*******");
        assert_eq!(stream.push(b" "), b"******* ");
        assert_eq!(stream.push(b"hunter2"), b"");
        assert_eq!(stream.finish(), b"hunter2");
    }

    #[test]
    fn the_end_is_released_and_the_rest_of_a_secret_is_still_masked() {
        let released = |bytes: &[u8], is_new_part| Released { bytes: bytes.to_vec(), is_new_part };
        let mut stream = Scrubber::new(["pass-phrase"].into_iter()).stream();
        assert_eq!(stream.push(b"x pas"), b"x ");
        assert!(stream.is_holding());
        assert_eq!(stream.release(), released(b"pas", false));
        assert!(!stream.is_holding());
        assert_eq!(stream.push(b"s-p"), b"");
        assert!(stream.is_holding());
        assert_eq!(stream.release(), released(b"", true));
        assert!(!stream.is_holding());
        // The same part goes on.
        assert_eq!(stream.push(b"h"), b"");
        assert!(!stream.is_holding());
        assert_eq!(stream.push(b"rase! pass"), b"********! ");
        assert_eq!(stream.release(), released(b"", true));
        assert_eq!(stream.push(b" pass"), b"pass ");
        assert_eq!(stream.release(), released(b"", true));
    }

    /// Attack: guesses that a server echoes, to learn from the delay which of them are the beginning of the secret.
    #[test]
    fn delivery_does_not_depend_on_guesses_of_the_secret() {
        let longest = scrubber().patterns.unwrap().longest;
        let padding = "-".repeat(longest);
        for (guess, other) in [("s", "x"), ("sk", "xx"), ("sk-", "xxx"), ("hun", "xxx")] {
            let mut lengths = Vec::new();
            for text in [guess, other] {
                let mut stream = scrubber().uniform_stream();
                let mut counts = vec![stream.push(format!("{padding}{text}").as_bytes()).len()];
                counts.push(stream.release().bytes.len());
                counts.push(stream.push(text.as_bytes()).len());
                counts.push(stream.release().bytes.len());
                counts.push(stream.push(b"end").len());
                counts.push(stream.finish().len());
                lengths.push(counts);
            }
            assert_eq!(lengths[0], lengths[1], "{guess}");
        }
    }

    #[test]
    fn uniform_streams_mask_in_chunks_of_any_size() {
        let text: Vec<u8> =
            forms(SECRET).iter().flat_map(|form| [b" sk-prod/ ", form.as_slice(), form].concat()).collect();
        let whole = scrubber().scrub(&text).into_owned();
        for size in 1..80 {
            let mut stream = scrubber().uniform_stream();
            let mut scrubbed: Vec<u8> = text.chunks(size).flat_map(|chunk| stream.push(chunk)).collect();
            scrubbed.extend(stream.finish());
            assert_eq!(scrubbed, whole, "chunks of {size}");
        }
    }

    #[test]
    fn without_secrets_nothing_changes() {
        let empty = Scrubber::default();
        assert_eq!(empty.scrub_text("abc"), "abc");
        assert_eq!(empty.stream().push(b"abc"), b"abc");
    }
}
