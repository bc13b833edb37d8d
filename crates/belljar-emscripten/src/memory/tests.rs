//! Memories that begin as an image, and begin so again.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::image::Spares;
use super::{MAX_KEPT_PAGES, Mapping, MemoryImage, PAGE, WASM_PAGE};

const LENGTH: usize = 128 * WASM_PAGE;
const RESERVED: usize = 1 << 32;

/// An image in which each page holds its number, behind something else in the file.
fn image() -> MemoryImage {
    let file: File = tempfile::tempfile().unwrap();
    file.set_len((WASM_PAGE + LENGTH) as u64).unwrap();
    for page in 0..LENGTH / PAGE {
        file.write_all_at(&page.to_ne_bytes(), (WASM_PAGE + page * PAGE) as u64).unwrap();
    }
    MemoryImage::new(file, WASM_PAGE as u64, LENGTH as u64).unwrap()
}

fn mapping(image: &MemoryImage) -> Mapping {
    Mapping::new(LENGTH, RESERVED, WASM_PAGE, Some(image.clone())).unwrap()
}

/// All accessible bytes.
fn bytes(mapping: &mut Mapping) -> &mut [u8] {
    // SAFETY: the mapping is accessible up to its size, and borrowed as long as the slice lives.
    unsafe { std::slice::from_raw_parts_mut(mapping.base, mapping.size) }
}

fn assert_is(mapping: &mut Mapping, image: &MemoryImage) {
    let mut expected = vec![0; LENGTH];
    image.file.read_exact_at(&mut expected, image.offset).unwrap();
    assert!(bytes(mapping) == expected, "the memory is not the image");
}

fn spares(image: &MemoryImage) -> usize {
    image.spares.0.lock().unwrap().len()
}

#[test]
fn a_memory_is_used_again_as_its_image() {
    let image = image();
    let mut first = mapping(&image);
    let base = first.base;
    assert_is(&mut first, &image);
    for page in [0, 7, 8, 9, LENGTH / PAGE - 1] {
        bytes(&mut first)[page * PAGE..][..PAGE].fill(0xff);
    }
    first.open_to(LENGTH + 3 * WASM_PAGE).unwrap();
    bytes(&mut first)[LENGTH..].fill(0xff);
    drop(first);
    assert_eq!(spares(&image), 1);
    let mut second = mapping(&image);
    assert_eq!((second.base, spares(&image)), (base, 0));
    assert_is(&mut second, &image);
    // What it grows by is zero again.
    second.open_to(LENGTH + 3 * WASM_PAGE).unwrap();
    assert!(bytes(&mut second)[LENGTH..].iter().all(|byte| *byte == 0));
    // And again.
    bytes(&mut second)[5] = 0xff;
    drop(second);
    assert_is(&mut mapping(&image), &image);
}

#[test]
fn a_memory_that_was_written_to_a_lot_is_not_kept() {
    let image = image();
    let mut first = mapping(&image);
    for page in 0..=MAX_KEPT_PAGES as usize {
        bytes(&mut first)[page * PAGE] = 0xff;
    }
    drop(first);
    assert_eq!(spares(&image), 0);
    assert_is(&mut mapping(&image), &image);
}

#[test]
fn a_memory_is_not_kept_when_its_image_cannot_be_read() {
    let image = image();
    let mut first = mapping(&image);
    bytes(&mut first)[LENGTH - 1] = 0xff;
    let unreadable = File::options().write(true).open("/dev/null").unwrap();
    first.image = Some(MemoryImage { file: unreadable.into(), ..image.clone() });
    drop(first);
    assert_eq!(spares(&image), 0);
}

#[test]
fn only_so_many_memories_are_kept() {
    let image = image();
    let most = Spares::most();
    let all: Vec<_> = (0..most + 2).map(|_| mapping(&image)).collect();
    drop(all);
    assert_eq!(spares(&image), most);
}
