//! Rich output: MIME bundles, as Jupyter's messaging specification has them, and the images among them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// The representations of one object by MIME type: text, base64 for binary formats, or JSON.
pub type MimeBundle = BTreeMap<String, Value>;

/// Returns the `text/plain` representation of `bundle`.
pub fn text_plain(bundle: &MimeBundle) -> Option<&str> {
    bundle.get("text/plain").and_then(Value::as_str)
}

/// The content of a `display_data` or `execute_result` message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DisplayData {
    /// The object's representations.
    pub data: MimeBundle,
    /// Metadata of the representations, by MIME type: `{"image/png": {"width": 640}}`.
    pub metadata: Map<String, Value>,
    /// The `display_id` by which later events update this display.
    pub display_id: Option<String>,
}

/// A change to what a cell displays.
#[derive(Debug, Clone, PartialEq)]
pub enum DisplayEvent {
    /// Displays an object: `display_data`.
    Display(DisplayData),
    /// Displays the value of the cell's last line: `execute_result`.
    ExecuteResult(DisplayData),
    /// Replaces the display of the same `display_id`: `update_display_data`.
    Update(DisplayData),
    /// Clears the cell's output: `clear_output`.
    Clear {
        /// Clears only when the next output arrives.
        wait: bool,
    },
}

/// An image format that clients can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// Portable Network Graphics.
    Png,
    /// JPEG.
    Jpeg,
    /// Scalable Vector Graphics.
    Svg,
}

impl ImageFormat {
    /// All formats, the preferred ones first.
    pub const ALL: [Self; 3] = [Self::Png, Self::Jpeg, Self::Svg];

    /// Returns the format's MIME type.
    pub fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Svg => "image/svg+xml",
        }
    }

    /// Returns the extension of file names.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Svg => "svg",
        }
    }

    /// Returns the format of this MIME type.
    pub fn from_mime_type(mime_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.mime_type() == mime_type)
    }

    /// Returns whether `bytes` begin as files of this format do.
    fn matches(self, bytes: &[u8]) -> bool {
        match self {
            Self::Png => bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
            Self::Jpeg => bytes.starts_with(b"\xff\xd8\xff"),
            Self::Svg => bytes.trim_ascii_start().starts_with(b"<"),
        }
    }
}

/// An image whose bytes were checked against its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The format.
    pub format: ImageFormat,
    /// The file in base64, without line breaks.
    pub base64: String,
}

/// The reason why bytes from a guest are not taken as an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The MIME type is not one of [`ImageFormat`].
    #[error("only PNG, JPEG and SVG images are shown")]
    Format,
    /// The data is not base64.
    #[error("the image is not base64")]
    Base64,
    /// The file does not begin as files of its MIME type do.
    #[error("the data is not a file of type {0}")]
    Content(&'static str),
    /// The call has shown too many images.
    #[error("at most {count} images, of {megabytes} MB together, are shown")]
    TooMany {
        /// The most images.
        count: usize,
        /// The most megabytes of base64.
        megabytes: usize,
    },
}

impl Image {
    /// Checks a file in base64, as an untrusted guest sent it.
    ///
    /// # Errors
    /// Fails if the format is unknown, the text is not base64, or the bytes are not of the format.
    pub fn from_base64(mime_type: &str, base64: String) -> Result<Self, ImageError> {
        let format = ImageFormat::from_mime_type(mime_type).ok_or(ImageError::Format)?;
        let bytes = STANDARD.decode(&base64).map_err(|_| ImageError::Base64)?;
        if !format.matches(&bytes) {
            return Err(ImageError::Content(format.mime_type()));
        }
        Ok(Self { format, base64 })
    }

    /// Returns the preferred image of `bundle`, if it has a valid one.
    pub fn from_bundle(bundle: &MimeBundle) -> Option<Self> {
        ImageFormat::ALL.into_iter().find_map(|format| {
            let data = bundle.get(format.mime_type())?.as_str()?;
            // Jupyter sends SVG as text.
            let base64 = match format {
                ImageFormat::Svg => STANDARD.encode(data),
                ImageFormat::Png | ImageFormat::Jpeg => data.replace('\n', ""),
            };
            Self::from_base64(format.mime_type(), base64).ok()
        })
    }

    /// Returns the file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.base64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_another_format_is_refused() {
        let check = |mime_type: &str, bytes: &[u8]| Image::from_base64(mime_type, STANDARD.encode(bytes));
        assert!(check("image/svg+xml", b" <svg/>").is_ok());
        assert_eq!(check("image/png", b"<svg/>"), Err(ImageError::Content("image/png")));
        assert_eq!(check("image/jpeg", b""), Err(ImageError::Content("image/jpeg")));
        assert_eq!(check("text/html", b"<p>"), Err(ImageError::Format));
        assert_eq!(Image::from_base64("image/png", "&".into()), Err(ImageError::Base64));
    }

    #[test]
    fn the_preferred_valid_image_of_a_bundle_is_taken() {
        let svg = ("image/svg+xml".to_owned(), Value::from("<svg/>"));
        let broken_png = ("image/png".to_owned(), Value::from("AAAA"));
        let image = Image::from_bundle(&MimeBundle::from([svg, broken_png])).unwrap();
        assert_eq!((image.format, image.bytes()), (ImageFormat::Svg, b"<svg/>".to_vec()));
        assert_eq!(Image::from_bundle(&MimeBundle::from([("text/plain".into(), Value::from("x"))])), None);
    }
}
