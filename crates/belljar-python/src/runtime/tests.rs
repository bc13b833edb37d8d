//! The runtime's files from real and from misbehaving sources.

use belljar_core::NoProgress;

use super::{Release, RuntimeFile, Sources, obtain};
use crate::cache::Cache;

#[test]
fn npm_delivers_the_files_that_the_table_describes() {
    let cache = tempfile::tempdir().unwrap();
    let cache = Cache::open(Some(cache.path().to_path_buf())).unwrap();
    let sources = Sources { cdn: "http://127.0.0.1:1".to_owned(), ..Sources::default() };
    let files = obtain(Release::recommended(), &sources, &cache, &NoProgress).unwrap();
    for file in RuntimeFile::ALL {
        assert_eq!(files.read(file).unwrap().len() as u64, Release::recommended().fingerprint(file).size);
    }
}
