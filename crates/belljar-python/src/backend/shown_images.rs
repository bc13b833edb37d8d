//! Images that code in an interpreter of its own shows: its host calls.

use belljar_core::{ImageCollector, mime};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::host_calls::{CallError, HostCall, HostCallContext};

/// The host call `display`: adds an image to the report.
pub(super) struct DisplayImage(pub(super) ImageCollector);

impl HostCall for DisplayImage {
    fn call(&self, request: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        display_image(&self.0, request).map_err(CallError::Refused)?;
        to_raw_value(&()).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// Adds the image of a request of the host call `display` to those of the report.
///
/// # Errors
/// The reason why it is refused.
pub(super) fn display_image(images: &ImageCollector, request: &RawValue) -> Result<(), String> {
    #[derive(Deserialize)]
    struct DisplayRequest {
        mime: String,
        data: String,
    }
    let DisplayRequest { mime, data } =
        serde_json::from_str(request.get()).map_err(|_| "`display` takes a MIME type and data")?;
    let pushed = mime::Image::from_base64(&mime, data).and_then(|image| images.push(image));
    pushed.map_err(|error| error.to_string())
}

/// The host call `takes_images`: reports to the guest that images can be displayed.
pub(super) struct TakesImages;

impl HostCall for TakesImages {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        to_raw_value(&true).map_err(|error| CallError::Refused(error.to_string()))
    }
}
