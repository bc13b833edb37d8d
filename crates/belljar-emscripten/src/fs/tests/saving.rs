//! Tests of files in snapshots.

use super::*;

fn round_trip(files: &Filesystem, layers: &[Arc<Layer>]) -> Result<Filesystem, LoadError> {
    let bytes = postcard::to_stdvec(&files.save()).unwrap();
    postcard::from_bytes::<FilesystemSnapshot>(&bytes).unwrap().load(layers, files.quota())
}

fn layer() -> Arc<Layer> {
    let mut builder = LayerBuilder::new();
    builder.file("/lib/a", b"layer a".to_vec()).unwrap().file("/lib/b", b"layer b".to_vec()).unwrap();
    builder.file("/lib/deep/c", b"c".to_vec()).unwrap();
    builder.finish("the layer")
}

#[test]
fn all_files_and_descriptors_round_trip() {
    let mut files = files();
    files.add_layer(layer());
    files.put("/home/own", &"own ".repeat(50_000));
    files.symlink("own", "link").unwrap();
    files.unlink("/lib/a").unwrap();
    files.rename("/lib/deep", "/lib/moved").unwrap();
    let written = files.open("/lib/b", OpenFlags::READ_WRITE).unwrap();
    files.write(written, b"LAYER").unwrap();
    let twin = files.duplicate(written, 20, true).unwrap();
    let removed = files.open("removed", NEW).unwrap();
    files.write(removed, b"still here").unwrap();
    files.unlink("removed").unwrap();
    let [reader, writer] = files.pipe(OpenFlags::default()).unwrap();
    files.write(writer, b"in the pipe").unwrap();
    files.chmod("/home/own", 0o640).unwrap();
    files.set_umask(0o27);
    let usage = files.usage();
    let own = files.stat("/home/own").unwrap();

    let mut loaded = round_trip(&files, &[layer()]).unwrap();
    assert_eq!(loaded.usage(), usage);
    assert_eq!(loaded.stat("/home/link").unwrap(), own);
    assert_eq!(loaded.get("/home/own"), files.get("/home/own"));
    assert_eq!(loaded.names("/lib").unwrap(), ["b", "moved"]);
    assert_eq!(loaded.get("/lib/b").unwrap(), "LAYER b");
    assert_eq!(loaded.get("/lib/moved/c").unwrap(), "c");
    assert!(loaded.unmodified("/lib/moved/c").is_some());
    assert!(loaded.unmodified("/lib/b").is_none());
    assert_eq!(loaded.seek(twin, 0, Whence::Current), Ok(5));
    assert_eq!(loaded.close_on_exec(twin), Ok(true));
    let mut bytes = [0; 32];
    assert_eq!(loaded.read_at(removed, 0, &mut bytes), Ok(10));
    assert_eq!(loaded.read(reader, &mut bytes), Ok(11));
    loaded.close(writer).unwrap();
    assert_eq!(loaded.read(reader, &mut bytes), Ok(0));
    assert_eq!(loaded.device(2), Ok(Some(Device::Stderr)));
    assert_eq!(loaded.set_umask(0), 0o27);
    assert_eq!(loaded.cwd().unwrap(), "/home");
    // New inodes do not get the number of an existing one.
    loaded.put("/home/new", "");
    let new = loaded.stat("/home/new").unwrap().ino;
    assert!(["/home/own", "/lib/b", "/tmp", "/dev/null"].iter().all(|path| loaded.stat(path).unwrap().ino != new));
}

#[test]
fn saved_files_and_copies_of_them_save_the_same() {
    let mut files = files();
    files.add_layer(layer());
    files.get("/lib/a").unwrap();
    files.put("x/y", "z");
    files.unlink("x/y").unwrap();
    let bytes = postcard::to_stdvec(&files.save()).unwrap();
    let loaded = round_trip(&files, &[layer()]).unwrap();
    assert_eq!(postcard::to_stdvec(&loaded.save()).unwrap(), bytes);
}

#[test]
fn a_missing_layer_is_named() {
    let mut files = files();
    files.add_layer(layer());
    assert_eq!(files.save().layers().collect::<Vec<_>>(), ["the layer"]);
    assert_eq!(round_trip(&files, &[]).unwrap_err(), LoadError::Layer("the layer".into()));
}

#[test]
fn a_layer_that_lacks_a_file_is_refused() {
    let mut files = files();
    files.add_layer(layer());
    files.get("/lib/a").unwrap();
    let other = LayerBuilder::new().finish("the layer");
    assert!(matches!(round_trip(&files, &[other]), Err(LoadError::Damaged(_))));
}

#[test]
fn mounts_are_left_out_and_their_descriptors_closed() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("f"), "host").unwrap();
    let mut files = files();
    files.mount("/mnt", Arc::new(HostDirectory::open(directory.path(), false).unwrap())).unwrap();
    let fd = files.open("/mnt/f", OpenFlags::READ_ONLY).unwrap();
    files.change_directory("/mnt").unwrap();
    let mut loaded = round_trip(&files, &[]).unwrap();
    assert_eq!(loaded.read(fd, &mut [0; 4]), Err(Errno::EBADF));
    assert_eq!(loaded.cwd().unwrap(), "/mnt");
    assert!(loaded.names(".").unwrap().is_empty());
}

#[test]
fn damaged_saved_files_never_cause_a_panic() {
    let mut files = files();
    files.add_layer(layer());
    files.put("/home/d/f", "contents");
    files.symlink("f", "/home/d/l").unwrap();
    files.unlink("/lib/a").unwrap();
    files.pipe(OpenFlags::default()).unwrap();
    let bytes = postcard::to_stdvec(&files.save()).unwrap();
    let mut refused = 0;
    for at in 0..bytes.len() {
        for change in [1, 0x7f, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= change;
            let Ok(saved) = postcard::from_bytes::<FilesystemSnapshot>(&bytes) else { continue };
            match saved.load(&[layer()], Quota::default()) {
                Err(_) => refused += 1,
                Ok(mut loaded) => {
                    let _ = loaded.list("/", 1000);
                    let _ = loaded.cwd();
                    for fd in 0..10 {
                        let _ = loaded.read(fd, &mut [0; 16]);
                        let _ = loaded.close(fd);
                    }
                    let _ = loaded.remove("/home");
                }
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn deferred_files_are_looked_up_again_or_saved_with_their_contents() {
    let layer = || {
        let mut builder = LayerBuilder::new();
        for name in ["read", "renamed", "changed", "opened", "absent"] {
            builder.deferred(&format!("/lib/{name}")).unwrap();
        }
        builder.finish("the layer")
    };
    let supplied = layer();
    for name in ["read", "renamed", "changed", "opened"] {
        assert!(supplied.supply(&format!("lib/{name}"), name.as_bytes().to_vec().into()));
    }
    let mut files = files();
    files.add_layer(supplied);
    assert_eq!(files.names("/lib").unwrap(), ["changed", "opened", "read", "renamed"]);
    assert_eq!(files.get("/lib/absent"), Err(Errno::ENOENT));
    assert_eq!(files.get("/lib/read").unwrap(), "read");
    files.rename("/lib/renamed", "/lib/other").unwrap();
    let changed = files.open("/lib/changed", OpenFlags::READ_WRITE).unwrap();
    files.write(changed, b"CH").unwrap();
    files.close(changed).unwrap();
    let opened = files.open("/lib/opened", OpenFlags::READ_ONLY).unwrap();

    // Elsewhere the contents have not been supplied.
    let elsewhere = layer();
    let mut loaded = round_trip(&files, std::slice::from_ref(&elsewhere)).unwrap();
    assert_eq!(loaded.get("/lib/read"), Err(Errno::ENOENT));
    assert_eq!(loaded.get("/lib/renamed"), Err(Errno::ENOENT));
    assert_eq!(loaded.get("/lib/other").unwrap(), "renamed");
    assert_eq!(loaded.get("/lib/changed").unwrap(), "CHanged");
    let mut bytes = [0; 32];
    assert_eq!(loaded.read(opened, &mut bytes), Ok(6));
    assert_eq!(elsewhere.take_missed(), ["lib/read"]);
    elsewhere.supply("lib/read", b"read".to_vec().into());
    assert_eq!(loaded.get("/lib/read").unwrap(), "read");
}
