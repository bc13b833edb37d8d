//! Manual pages, formatted by groff.

use std::process::Command;

use crate::harness::Belljar;

belljar_testing::trials! {
    manual_pages_format_without_warnings: [Groff],
}

fn manual_pages_format_without_warnings() {
    let directory = tempfile::tempdir().unwrap();
    let run = Belljar::without_cache().args(["man", "--out"]).arg(directory.path()).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    for page in directory.path().read_dir().unwrap() {
        let page = page.unwrap().path();
        let output =
            Command::new("groff").args(["-man", "-Tutf8", "-P-cbou", "-k", "-ww"]).arg(&page).output().unwrap();
        let (text, warnings) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && warnings.is_empty(), "{}: {warnings}", page.display());
        assert!(text.contains("SYNOPSIS") && text.contains("OPTIONS"), "{}: {text}", page.display());
    }
}
