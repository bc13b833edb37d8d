//! Truncation of text to the length that a model should read.

/// Divides `total` bytes among texts of these lengths. A short text gets its length, and the long ones get equal shares
/// of what remains.
pub fn allot(lengths: &[usize], total: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|at| lengths[*at]);
    let mut shares = vec![0; lengths.len()];
    let (mut room, mut left) = (total, lengths.len());
    for at in order {
        shares[at] = lengths[at].min(room / left);
        room -= shares[at];
        left -= 1;
    }
    shares
}

/// Returns the length of `text` in JSON, in bytes (RFC 8259, section 7), since answers are JSON: the length of a list
/// of its lines, without the brackets and the outer quotation marks. As one string, it is shorter by a byte for each
/// line.
pub fn json_length(text: &str) -> usize {
    text.bytes().map(json_byte_length).sum()
}

fn json_byte_length(byte: u8) -> usize {
    match byte {
        b'\n' => 3,
        b'"' | b'\\' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

/// Returns the bytes of the joined `texts` that remain when the middle is cut: those before the first number, and those
/// from the second on. They have at most `max` bytes in JSON, of which two thirds are the head.
pub fn head_and_tail<'a>(texts: impl DoubleEndedIterator<Item = &'a str> + Clone, max: usize) -> (usize, usize) {
    let length: usize = texts.clone().map(str::len).sum();
    let head = count_within(texts.clone().flat_map(str::bytes), max - max / 3);
    let tail = count_within(texts.rev().flat_map(|text| text.bytes().rev()), max / 3);
    (head, (length - tail).max(head))
}

/// Returns how many of the first bytes have at most `max` bytes in JSON.
fn count_within(bytes: impl Iterator<Item = u8>, max: usize) -> usize {
    let mut length = 0;
    bytes
        .take_while(|byte| {
            length += json_byte_length(*byte);
            length <= max
        })
        .count()
}

/// Returns `text` without its middle, if it has more than `max` bytes in JSON. `note` returns the text that replaces
/// the middle, from the number of bytes that are left out.
pub fn cut_middle(text: &str, max: usize, note: impl FnOnce(usize) -> String) -> String {
    if json_length(text) <= max {
        return text.to_owned();
    }
    let (head, tail) = head_and_tail(std::iter::once(text), max);
    let (head, tail) = (text.floor_char_boundary(head), text.ceil_char_boundary(tail));
    format!("{}{}{}", &text[..head], note(tail - head), &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_share_what_short_ones_leave() {
        assert_eq!(allot(&[10, 20], 100), [10, 20]);
        assert_eq!(allot(&[10, 500, 500], 110), [10, 50, 50]);
        assert_eq!(allot(&[500, 0, 60], 110), [55, 0, 55]);
        assert_eq!(allot(&[], 110), [0; 0]);
        for lengths in [&[1, 2, 3][..], &[1000, 1, 1000, 7], &[9; 30]] {
            assert!(allot(lengths, 100).into_iter().sum::<usize>() <= 100, "{lengths:?}");
        }
    }

    #[test]
    fn head_and_tail_of_a_long_text_remain() {
        let note = |left_out: usize| format!("[{left_out}]");
        assert_eq!(cut_middle("0123456789", 10, note), "0123456789");
        assert_eq!(cut_middle("0123456789", 6, note), "0123[4]89");
        assert_eq!(cut_middle("0123456789", 0, note), "[10]");
        assert_eq!(cut_middle("ééééé", 3, note), "é[8]");
    }

    #[test]
    fn lengths_are_those_in_json() {
        let every: String = (0..0x250).filter_map(char::from_u32).collect();
        let lines: Vec<&str> = every.split('\n').collect();
        assert_eq!(json_length(&every) + r#"[""]"#.len(), serde_json::to_string(&lines).unwrap().len());
        let lines = "a\n".repeat(1000);
        let cut = cut_middle(&lines, 300, |_| String::new());
        assert!((295..=300).contains(&json_length(&cut)), "{}", json_length(&cut));
        let texts = ["a\n".repeat(10), "\u{1b}".repeat(10)];
        assert_eq!(head_and_tail(texts.iter().map(String::as_str), 30), (10, 29));
    }
}
