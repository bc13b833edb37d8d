//! Opening a page in the user's browser.

use url::Url;

use crate::os::HAS_DESKTOP;

/// The reason for which a page was not opened.
///
/// ```
/// use belljar_mcp_client::oauth::{BrowserError, open_browser};
///
/// assert!(matches!(open_browser("file:///etc/passwd"), Err(BrowserError::NotAWebPage)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// The URL is not an `http` or `https` URL. Authorization servers choose it, and other URLs start programs.
    #[error("the page is not an http or https URL")]
    NotAWebPage,
    /// The program does not run on a desktop.
    #[error("the program does not run on a desktop")]
    NoDesktop,
    /// The browser could not be started.
    #[error("failed to start a browser: {0}")]
    Start(std::io::Error),
}

/// Opens a page in the user's browser, without waiting for it. On Linux this requires `DISPLAY` or `WAYLAND_DISPLAY`.
///
/// Show the URL to the user as well: the browser may be on another computer.
///
/// ```no_run
/// use belljar_mcp_client::oauth::{LoopbackRedirect, open_browser};
///
/// let redirect = LoopbackRedirect::new(|url| {
///     if let Err(error) = open_browser(url) {
///         eprintln!("{error}");
///     }
///     eprintln!("visit {url}");
/// });
/// ```
///
/// # Errors
///
/// Returns [`BrowserError`].
pub fn open_browser(url: &str) -> Result<(), BrowserError> {
    if !Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Err(BrowserError::NotAWebPage);
    }
    if !has_desktop() {
        return Err(BrowserError::NoDesktop);
    }
    open::that_detached(url).map_err(BrowserError::Start)
}

/// Returns whether the program runs on a desktop.
fn has_desktop() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    HAS_DESKTOP || ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].into_iter().any(is_set)
}
