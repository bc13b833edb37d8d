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

/// Returns the ranges of `length` bytes that remain when the middle is cut: the bytes before the first number, and
/// those from the second on. Two thirds of `max` bytes are the head.
pub fn head_and_tail(length: usize, max: usize) -> (usize, usize) {
    let max = max.min(length);
    let head = max - max / 3;
    (head, length - (max - head))
}

/// Returns `text` without its middle, if it is longer than `max` bytes. `note` returns the text that replaces the
/// middle, from the number of bytes that are left out.
pub fn cut_middle(text: &str, max: usize, note: impl FnOnce(usize) -> String) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let (head, tail) = head_and_tail(text.len(), max);
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
}
