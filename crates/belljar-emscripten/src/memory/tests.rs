//! Tests of memories that start with an image, and are reused with it.

use std::fs::File;

use crate::os::{read_exact_at, write_all_at};

use super::image::kept_per_image;
use super::{MAX_KEPT_PAGES, Mapping, MemoryImage, PAGE, WASM_PAGE};

const LENGTH: usize = 128 * WASM_PAGE;
const RESERVED: usize = 1 << 32;

/// Creates an image in which each page holds its number, placed behind other data in the file.
fn image() -> MemoryImage {
    let file: File = tempfile::tempfile().unwrap();
    file.set_len((WASM_PAGE + LENGTH) as u64).unwrap();
    for page in 0..LENGTH / PAGE {
        write_all_at(&file, &page.to_ne_bytes(), (WASM_PAGE + page * PAGE) as u64).unwrap();
    }
    MemoryImage::new(file, WASM_PAGE as u64, LENGTH as u64).unwrap()
}

fn mapping(image: &MemoryImage) -> Mapping {
    Mapping::new(LENGTH, RESERVED, WASM_PAGE, Some(image.clone())).unwrap()
}

/// Returns all accessible bytes.
fn bytes(mapping: &mut Mapping) -> &mut [u8] {
    // SAFETY: the mapping is accessible up to its size, and borrowed as long as the slice lives.
    unsafe { std::slice::from_raw_parts_mut(mapping.base, mapping.size) }
}

fn assert_is(mapping: &mut Mapping, image: &MemoryImage) {
    let mut expected = vec![0; LENGTH];
    read_exact_at(&image.file, &mut expected, image.offset).unwrap();
    assert!(bytes(mapping) == expected, "the memory is not the image");
}

fn kept(image: &MemoryImage) -> usize {
    image.pool.0.lock().len()
}

#[test]
fn memory_is_reused_with_the_contents_of_its_image() {
    let image = image();
    let mut first = mapping(&image);
    let base = first.base;
    assert_is(&mut first, &image);
    for page in [0, 7, 8, 9, LENGTH / PAGE - 1] {
        bytes(&mut first)[page * PAGE..][..PAGE].fill(0xff);
    }
    first.commit_to(LENGTH + 3 * WASM_PAGE).unwrap();
    bytes(&mut first)[LENGTH..].fill(0xff);
    drop(first);
    assert_eq!(kept(&image), 1);
    let mut second = mapping(&image);
    assert_eq!((second.base, kept(&image)), (base, 0));
    assert_is(&mut second, &image);
    // The memory that it grows by is zero again.
    second.commit_to(LENGTH + 3 * WASM_PAGE).unwrap();
    assert!(bytes(&mut second)[LENGTH..].iter().all(|byte| *byte == 0));
    // The memory can be reused a second time.
    bytes(&mut second)[5] = 0xff;
    drop(second);
    assert_is(&mut mapping(&image), &image);
}

#[test]
fn memory_with_many_written_pages_is_not_kept() {
    let image = image();
    let mut first = mapping(&image);
    for page in 0..=MAX_KEPT_PAGES as usize {
        bytes(&mut first)[page * PAGE] = 0xff;
    }
    drop(first);
    assert_eq!(kept(&image), 0);
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
    assert_eq!(kept(&image), 0);
}

#[test]
fn number_of_kept_memories_is_limited() {
    let image = image();
    let capacity = kept_per_image();
    let all: Vec<_> = (0..capacity + 2).map(|_| mapping(&image)).collect();
    drop(all);
    assert_eq!(kept(&image), capacity);
}
