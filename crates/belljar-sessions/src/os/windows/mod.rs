//! Windows. Files are found by path: links that are put in the place of a directory are refused when it is opened, and
//! not later.

pub(crate) mod host_directory;
pub(crate) mod private_directory;
