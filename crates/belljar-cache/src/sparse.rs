//! Sparse files: images of memory are mostly zeroes, which take no space on the disk and no time to write.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

/// The granularity in bytes at which zeroes are left out: that of file systems.
const BLOCK: usize = 4096;

/// Writes `bytes` into a new file, with holes where blocks are zero.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn write(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.set_len(bytes.len() as u64)?;
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
    let mut rest = bytes;
    let mut offset = 0;
    for run in blocks.chunk_by(|one, other| is_zero(one) == is_zero(other)) {
        let length = run.iter().map(|block| block.len()).sum();
        let (filled, following) = rest.split_at(length);
        if run.first().is_some_and(|block| !is_zero(block)) {
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(filled)?;
        }
        rest = following;
        offset += length as u64;
    }
    Ok(())
}

/// Compares a block as a whole: comparing byte by byte takes longer than writing.
fn is_zero(block: &[u8]) -> bool {
    static ZEROES: [u8; BLOCK] = [0; BLOCK];
    ZEROES.get(..block.len()) == Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_contents_with_and_without_zeroes_at_the_ends() {
        let pages = |fill: &[u8]| fill.iter().flat_map(|&byte| [byte; BLOCK]).collect::<Vec<u8>>();
        let mut unaligned = pages(&[0, 1, 1, 0, 0, 2]);
        unaligned.truncate(5 * BLOCK + 7);
        for bytes in [Vec::new(), vec![0; 3], vec![1; 3], pages(&[1, 0, 0, 2]), pages(&[0, 3, 0]), unaligned] {
            let file = tempfile::NamedTempFile::new().unwrap();
            write(&mut file.reopen().unwrap(), &bytes).unwrap();
            assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
        }
    }
}
