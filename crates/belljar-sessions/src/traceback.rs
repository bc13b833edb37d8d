//! Shortens IPython's tracebacks, of which each piece is a frame or text between frames.

/// Leaves out the frames of libraries, except the innermost frame of each exception, which shows where it was raised.
pub(crate) fn leave_out_library_frames(traceback: &mut Vec<String>) {
    let mut pieces = std::mem::take(traceback).into_iter().peekable();
    let mut left_out = 0_usize;
    while let Some(piece) = pieces.next() {
        let is_innermost = pieces.peek().is_none_or(|next| !is_frame(next));
        if is_library_frame(&piece) && !is_innermost {
            left_out += 1;
            continue;
        }
        if left_out > 0 {
            let frames = if left_out == 1 { "frame" } else { "frames" };
            traceback.push(format!("[… {left_out} {frames} of libraries]"));
            left_out = 0;
        }
        traceback.push(piece);
    }
}

fn is_frame(piece: &str) -> bool {
    let piece = piece.trim_start();
    piece.starts_with("File ") || piece.starts_with("Cell In[") || piece.starts_with("Input In [")
}

/// Returns whether a piece is a frame of the standard library or of an installed package.
fn is_library_frame(piece: &str) -> bool {
    let first_line = piece.trim_start().lines().next().unwrap_or_default();
    first_line.starts_with("File ") && ["/site-packages/", "/lib/python3"].iter().any(|part| first_line.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_libraries_in_the_middle_are_left_out() {
        let text = |pieces: &[&str]| pieces.iter().map(|piece| (*piece).to_owned()).collect::<Vec<_>>();
        let (head, cell) = ("KeyError  Traceback (most recent call last)", "Cell In[3], line 1\n----> 1 f()");
        let library = |line: u8| format!("File /lib/python3.14/site-packages/pandas/core/frame.py:{line}, in f(self)");
        let own = "File /home/user/own.py:2, in g()";
        let last = "KeyError: 'zzz'";
        let mut traceback = text(&[head, cell, &library(1), &library(2), own, &library(3), &library(4), last]);
        leave_out_library_frames(&mut traceback);
        let frames = |count| format!("[… {count} of libraries]");
        let wanted = [head, cell, &frames("2 frames"), own, &frames("1 frame"), &library(4), last];
        assert_eq!(traceback, text(&wanted));
        let chained = [head, cell, &library(1), last, "During handling", head, cell, last];
        let mut traceback = text(&chained);
        leave_out_library_frames(&mut traceback);
        assert_eq!(traceback, text(&chained));
    }
}
