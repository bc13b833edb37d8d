//! The images that one call shows, within bounds.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::mime::{Image, ImageError};

/// The most images of one call.
const MAX_IMAGES: usize = 20;
/// The most bytes of all images of one call, in base64.
const MAX_BYTES: usize = 12 << 20;

/// A bounded list of images. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ImageCollector(Arc<Mutex<Vec<Image>>>);

impl ImageCollector {
    /// Adds an image.
    ///
    /// # Errors
    /// Returns [`ImageError::TooMany`] if the list is full.
    pub fn push(&self, image: Image) -> Result<(), ImageError> {
        let mut images = self.0.lock();
        let held: usize = images.iter().map(|image| image.base64.len()).sum();
        if images.len() >= MAX_IMAGES || held + image.base64.len() > MAX_BYTES {
            return Err(ImageError::TooMany { count: MAX_IMAGES, megabytes: MAX_BYTES >> 20 });
        }
        images.push(image);
        Ok(())
    }

    /// Returns whether no image was added since the images were last taken.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Returns copies of the images, in the order in which they were shown.
    pub fn peek(&self) -> Vec<Image> {
        self.0.lock().clone()
    }

    /// Removes and returns the images, in the order in which they were shown.
    pub fn take(&self) -> Vec<Image> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mime::ImageFormat;

    #[test]
    fn the_number_and_the_size_of_images_are_bounded() {
        let accepted = |bytes: usize| {
            let images = ImageCollector::default();
            let image = Image { format: ImageFormat::Svg, base64: "A".repeat(bytes) };
            (0..100).filter(|_| images.push(image.clone()).is_ok()).count()
        };
        assert_eq!(accepted(1), MAX_IMAGES);
        assert_eq!(accepted(MAX_BYTES / 2), 2);
    }
}
