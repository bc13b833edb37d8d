//! Images that code shows: taken from the guest with care, and passed on as content of the tool's result.

use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::kernel::Bundle;
use belljar_python::{CallError, HostCall, Interpreter, Scene};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

/// Images of one call.
const MOST: usize = 20;
/// Bytes of all images of one call, in base64.
const MOST_BYTES: usize = 12 << 20;

/// One image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    /// One of [`Kind`]'s.
    pub(crate) mime: &'static str,
    /// The file, in base64.
    pub(crate) data: String,
}

/// What one call shows. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Images(Arc<Mutex<Vec<Image>>>);

impl Images {
    /// Takes what the code in `interpreter` shows.
    pub(crate) fn serve(&self, interpreter: &mut Interpreter) {
        interpreter.answer("takes_images", Arc::new(TakesImages));
        interpreter.answer("display", Arc::new(self.clone()));
    }

    pub(crate) fn take(&self) -> Vec<Image> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the image among something's forms, by MIME type, if there is one that clients show.
    pub(crate) fn add_of(&self, forms: &Bundle) {
        let form = |kind: &Kind| Some((kind.mime, forms.get(kind.mime)?.as_str()?));
        let Some((mime, form)) = KINDS.iter().find_map(form) else { return };
        // Jupyter's SVG is text.
        let data = if mime == "image/svg+xml" { STANDARD.encode(form) } else { form.replace('\n', "") };
        if let Err(reason) = self.add(Asked { mime: mime.into(), data }) {
            tracing::debug!(reason, "an image is not shown");
        }
    }

    fn add(&self, asked: Asked) -> Result<(), String> {
        let kind =
            KINDS.iter().find(|kind| kind.mime == asked.mime).ok_or("only PNG, JPEG and SVG images are shown")?;
        let mut images = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = images.iter().map(|image| image.data.len()).sum();
        if images.len() >= MOST || held + asked.data.len() > MOST_BYTES {
            return Err(format!("at most {MOST} images, of {} MB together, are shown", MOST_BYTES >> 20));
        }
        let bytes = STANDARD.decode(&asked.data).map_err(|_| "the image is not base64")?;
        if !(kind.is)(&bytes) {
            return Err(format!("the data is no {} file", kind.mime));
        }
        images.push(Image { mime: kind.mime, data: asked.data });
        Ok(())
    }
}

/// A kind of image that clients show.
struct Kind {
    mime: &'static str,
    /// Whether a file begins as one of this kind does.
    is: fn(&[u8]) -> bool,
}

const KINDS: [Kind; 3] = [
    Kind { mime: "image/png", is: |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n") },
    Kind { mime: "image/jpeg", is: |bytes| bytes.starts_with(b"\xff\xd8\xff") },
    Kind { mime: "image/svg+xml", is: |bytes| bytes.trim_ascii_start().starts_with(b"<") },
];

/// What the guest asks.
#[derive(Deserialize)]
struct Asked {
    mime: String,
    data: String,
}

impl HostCall for Images {
    fn call(&self, request: &RawValue, _: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        let asked = serde_json::from_str(request.get());
        let asked = asked.map_err(|_| CallError::Refused("`display` takes a MIME type and data".into()))?;
        self.add(asked).map_err(CallError::Refused)?;
        to_raw_value(&()).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// Answers whether there is somebody to show images to.
struct TakesImages;

impl HostCall for TakesImages {
    fn call(&self, _: &RawValue, _: &mut Scene<'_>) -> Result<Box<RawValue>, CallError> {
        to_raw_value(&true).map_err(|error| CallError::Refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(mime: &str, bytes: &[u8]) -> Asked {
        Asked { mime: mime.into(), data: STANDARD.encode(bytes) }
    }

    #[test]
    fn what_is_no_image_of_its_kind_is_refused() {
        let images = Images::default();
        images.add(asked("image/svg+xml", b" <svg/>")).unwrap();
        for (mime, bytes) in [("image/png", &b"<svg/>"[..]), ("text/html", b"<p>"), ("image/jpeg", b"")] {
            assert!(images.add(asked(mime, bytes)).is_err(), "{mime}");
        }
        assert!(images.add(Asked { mime: "image/png".into(), data: "&".into() }).is_err());
        assert_eq!(images.take().len(), 1);
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let images = Images::default();
        let large = [&b"\xff\xd8\xff"[..], &vec![0; 4 << 20]].concat();
        let taken = (0..10).filter(|_| images.add(asked("image/jpeg", &large)).is_ok()).count();
        assert_eq!(taken, 2);
        let images = Images::default();
        let taken = (0..100).filter(|_| images.add(asked("image/svg+xml", b"<svg/>")).is_ok()).count();
        assert_eq!(taken, MOST);
    }
}
