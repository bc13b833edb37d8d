//! The words that Belljar's parts share.
