//! Tests of read-only layers below the private files.

use super::*;

fn layer(id: &str, contents: &[(&str, &str)]) -> Arc<Layer> {
    let mut builder = LayerBuilder::new();
    for (path, text) in contents {
        builder.file(path, text.as_bytes().to_vec()).unwrap();
    }
    builder.finish(id)
}

fn layered() -> Filesystem {
    let mut files = files();
    files.add_layer(layer("base", &[("/lib/a.py", "base a"), ("/lib/pkg/x.py", "x"), ("/lib/z", "z")]));
    files.add_layer(layer("site", &[("/lib/a.py", "site a"), ("/lib/pkg/y.py", "y"), ("/opt/o", "o")]));
    files
}

#[test]
fn layers_merge_and_later_ones_take_precedence() {
    let mut files = layered();
    assert_eq!(files.names("/lib").unwrap(), ["a.py", "pkg", "z"]);
    assert_eq!(files.names("/lib/pkg").unwrap(), ["x.py", "y.py"]);
    assert_eq!(files.get("/lib/a.py").unwrap(), "site a");
    assert_eq!(files.get("/lib/pkg/../z").unwrap(), "z");
    assert_eq!(files.usage().bytes, 0);
    assert_eq!(files.usage().inodes, 0);
}

#[test]
fn listing_does_not_change_inode_numbers() {
    let mut files = layered();
    let fd = files.open("/lib", OpenFlags::DIRECTORY).unwrap();
    let listed = files.read_directory(fd, 9).unwrap();
    for entry in listed.iter().skip(2) {
        assert_eq!(files.stat(&format!("/lib/{}", entry.name)).unwrap().ino, entry.ino);
    }
    files.seek(fd, 0, Whence::Start).unwrap();
    assert_eq!(files.read_directory(fd, 9).unwrap(), listed);
}

#[test]
fn writing_copies_without_changing_the_layer() {
    let mut files = layered();
    let mut other = layered();
    let before = files.stat("/lib/a.py").unwrap().ino;
    let fd = files.open("/lib/a.py", OpenFlags::READ_WRITE).unwrap();
    files.write_at(fd, 0, b"mine").unwrap();
    assert_eq!(files.get("/lib/a.py").unwrap(), "mine a");
    assert_eq!(files.stat("/lib/a.py").unwrap().ino, before);
    assert_eq!(files.usage().bytes, 512);
    assert_eq!(other.get("/lib/a.py").unwrap(), "site a");
    files.chmod("/lib/z", 0o400).unwrap();
    assert_eq!(files.open("/lib/z", OpenFlags::WRITE_ONLY), Err(Errno::EACCES));
    assert_eq!(other.stat("/lib/z").unwrap().mode, 0o644);
}

#[test]
fn entries_removed_from_a_layer_stay_removed() {
    let mut files = layered();
    files.unlink("/lib/z").unwrap();
    assert_eq!(files.stat("/lib/z"), Err(Errno::ENOENT));
    files.put("/lib/z", "new");
    assert_eq!(files.get("/lib/z").unwrap(), "new");
    files.unlink("/lib/z").unwrap();
    assert_eq!(files.names("/lib").unwrap(), ["a.py", "pkg"]);
    assert_eq!(files.rmdir("/lib/pkg"), Err(Errno::ENOTEMPTY));
    files.unlink("/lib/pkg/x.py").unwrap();
    files.unlink("/lib/pkg/y.py").unwrap();
    files.rmdir("/lib/pkg").unwrap();
    // A directory that was removed and created again contains none of its previous entries.
    files.mkdir("/lib/pkg").unwrap();
    assert!(files.names("/lib/pkg").unwrap().is_empty());
    files.remove("/lib").unwrap();
    assert_eq!(files.stat("/lib/a.py"), Err(Errno::ENOENT));
    assert_eq!(files.usage().inodes, 0);
}

#[test]
fn files_and_directories_of_layers_can_be_renamed() {
    let mut files = layered();
    files.rename("/lib/pkg", "/lib/renamed").unwrap();
    assert_eq!(files.names("/lib").unwrap(), ["a.py", "renamed", "z"]);
    assert_eq!(files.names("/lib/renamed").unwrap(), ["x.py", "y.py"]);
    files.rename("/lib/renamed/x.py", "/lib/z").unwrap();
    assert_eq!(files.get("/lib/z").unwrap(), "x");
    assert_eq!(files.get("/lib/pkg/x.py"), Err(Errno::ENOENT));
    assert_eq!(files.rename("/opt", "/lib"), Err(Errno::ENOTEMPTY));
    files.rename("/lib/z", "/tmp/z").unwrap();
    assert_eq!(files.names("/lib").unwrap(), ["a.py", "renamed"]);
}

#[test]
fn layer_added_later_appears_in_known_directories() {
    let mut files = layered();
    files.names("/lib/pkg").unwrap();
    let before = files.stat("/lib/pkg").unwrap().times()[1];
    files.put("/lib/private", "mine");
    files.unlink("/lib/z").unwrap();
    files.add_layer(layer("late", &[("/lib/pkg/late.py", "l"), ("/lib/private", "hidden"), ("/lib/z", "hidden")]));
    assert_eq!(files.names("/lib/pkg").unwrap(), ["late.py", "x.py", "y.py"]);
    assert_eq!(files.get("/lib/private").unwrap(), "mine");
    assert_eq!(files.stat("/lib/z"), Err(Errno::ENOENT));
    assert!(files.stat("/lib/pkg").unwrap().times()[1] > before);
}

#[test]
fn a_file_in_a_layer_hides_a_directory_below_it() {
    let mut files = files();
    files.add_layer(layer("low", &[("/x/inner", "i")]));
    files.add_layer(layer("middle", &[("/x", "file")]));
    assert_eq!(files.get("/x").unwrap(), "file");
    files.add_layer(layer("high", &[("/y/only", "o")]));
    assert_eq!(files.get("/x").unwrap(), "file");
    let mut files = self::files();
    files.add_layer(layer("low", &[("/x/below", "b")]));
    files.add_layer(layer("middle", &[("/x", "file")]));
    files.add_layer(layer("high", &[("/x/above", "a")]));
    assert_eq!(files.names("/x").unwrap(), ["above"]);
}

#[test]
fn links_in_layers_are_followed_in_the_whole_tree() {
    let mut builder = LayerBuilder::new();
    builder.symlink("/usr/lib", "../lib").unwrap().symlink("/abs", "/home/own").unwrap();
    let mut files = layered();
    files.add_layer(builder.finish("links"));
    assert_eq!(files.get("/usr/lib/z").unwrap(), "z");
    files.put("/home/own", "own");
    assert_eq!(files.get("/abs").unwrap(), "own");
    assert_eq!(&*files.read_link_at(AT_FDCWD, "/abs").unwrap(), "/home/own");
}

#[test]
fn only_files_never_written_count_as_unmodified() {
    let mut files = layered();
    let original = files.unmodified("/lib/pkg/x.py").unwrap();
    assert_eq!(&*original, b"x");
    files.symlink("/lib/pkg/x.py", "/link").unwrap();
    assert!(files.unmodified("/link").is_some());
    files.rename("/lib/pkg/x.py", "/moved").unwrap();
    assert!(files.unmodified("/moved").is_some());
    // Writing makes a file the guest's, even if the contents are the same.
    let fd = files.open("/moved", OpenFlags::WRITE_ONLY).unwrap();
    assert!(files.unmodified("/moved").is_some());
    files.write(fd, b"x").unwrap();
    assert!(files.unmodified("/moved").is_none());
    let fd = files.open("/lib/z", OpenFlags::WRITE_ONLY.with(OpenFlags::TRUNCATE)).unwrap();
    assert!(files.unmodified("/lib/z").is_none());
    files.truncate_fd(fd, 1).unwrap();
    assert!(files.unmodified("/lib/z").is_none());
    files.truncate_at("/lib/a.py", 5).unwrap();
    files.truncate_at("/lib/a.py", 6).unwrap();
    assert!(files.unmodified("/lib/a.py").is_none());
    files.put("/own", "own");
    assert!(files.unmodified("/own").is_none());
    assert!(files.unmodified("/lib").is_none());
    assert!(files.unmodified("/absent").is_none());
    assert!(files.unmodified("/dev/zero").is_none());
}

#[test]
fn removing_a_layer_keeps_files_that_the_guest_wrote() {
    let mut files = layered();
    for path in ["/lib/a.py", "/lib/pkg/x.py", "/lib/pkg/y.py", "/opt/o"] {
        files.get(path).unwrap();
    }
    files.put("/lib/pkg/mine", "mine");
    files.put("/lib/pkg/y.py", "changed");
    assert!(files.remove_layer("site"));
    assert!(!files.remove_layer("site"));
    assert_eq!(files.get("/lib/a.py").unwrap(), "base a");
    assert_eq!(files.names("/lib/pkg").unwrap(), ["mine", "x.py", "y.py"]);
    assert_eq!(files.get("/lib/pkg/y.py").unwrap(), "changed");
    assert_eq!(files.stat("/opt"), Err(Errno::ENOENT));
    files.add_layer(layer("other", &[("/lib/pkg/new.py", "new"), ("/opt/o", "other o")]));
    assert_eq!(files.get("/lib/pkg/new.py").unwrap(), "new");
    assert_eq!(files.get("/opt/o").unwrap(), "other o");
}

#[test]
fn open_file_of_a_removed_layer_can_still_be_read() {
    let mut files = layered();
    let fd = files.open("/opt/o", OpenFlags::READ_ONLY).unwrap();
    files.remove_layer("site");
    let mut buffer = [0; 4];
    assert_eq!(files.read_at(fd, 0, &mut buffer), Ok(1));
    assert_eq!(files.stat("/opt/o"), Err(Errno::ENOENT));
    files.close(fd).unwrap();
}

#[test]
fn files_round_trip_without_a_removed_layer() {
    let mut files = layered();
    files.get("/opt/o").unwrap();
    files.remove_layer("site");
    let base = layer("base", &[("/lib/a.py", "base a"), ("/lib/pkg/x.py", "x"), ("/lib/z", "z")]);
    let mut loaded = files.save().load(&[base], Quota::default()).unwrap();
    assert_eq!(loaded.get("/lib/a.py").unwrap(), "base a");
    assert_eq!(loaded.stat("/opt"), Err(Errno::ENOENT));
}
