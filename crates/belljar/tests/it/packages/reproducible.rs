//! Images are reproducible: the same build makes the same bytes of the same parts, wherever the cache is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::harness::{Belljar, cache_entries};
use crate::wheels::Wheels;

/// Modules whose imports read much of what differs between two processes.
const MODULES: &[(&str, &str)] = &[
    ("state/__init__.py", "import functools, threading, weakref, xml.etree.ElementTree, sqlite3, argparse, decimal"),
    (
        "state/order.py",
        "names = {object() for _ in range(99)}, set(map(str, range(99))), dict.fromkeys(map(id, 'abc'))",
    ),
    ("state/clock.py", "import time\nstarted, used = time.monotonic(), time.process_time()"),
    ("state/slow.py", "import asyncio, time\ntime.sleep(0.2)\nasyncio.run(asyncio.sleep(0.1))"),
    ("state/files.py", "import os\nopen('/tmp/state', 'w').write('x')\nfound = os.stat('/tmp/state'), os.listdir('/')"),
    ("state/process.py", "import os, sys\nfound = os.getpid(), os.environ.copy(), sys.argv, os.getcwd(), os.times()"),
    ("state/random.py", "import random, secrets, tempfile, uuid, numbers\nrng = random.Random(5)"),
];

/// Returns the images in a cache by their entry's name.
fn images(cache: &Path) -> BTreeMap<String, PathBuf> {
    let files = [("base-", "base.image"), ("image-", "packages.image"), ("session-", "session.image")];
    let entries = files.iter().flat_map(|(kind, file)| {
        let entries = cache_entries(cache, kind).into_iter();
        entries.map(move |entry| (entry.file_name().unwrap().to_string_lossy().into_owned(), entry.join(file)))
    });
    entries.collect()
}

/// Describes the first places where two files differ.
fn differences(one: &Path, other: &Path) -> Option<String> {
    let (one, other) = (std::fs::read(one).unwrap(), std::fs::read(other).unwrap());
    if one == other {
        return None;
    }
    let different = one.iter().zip(&other).enumerate().filter(|(_, (one, other))| one != other);
    let places: Vec<usize> = different.map(|(at, _)| at).collect();
    let first: Vec<String> = places.iter().take(20).map(|at| format!("{at:#x}")).collect();
    Some(format!("{} and {} bytes, {} differ: {}", one.len(), other.len(), places.len(), first.join(", ")))
}

#[test]
fn two_caches_contain_the_same_images() {
    let wheels = Wheels::new().with("state", "1.0", MODULES);
    let root = tempfile::tempdir().unwrap();
    let notebook = root.path().join("empty.ipynb");
    std::fs::write(&notebook, r#"{ "nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [] }"#).unwrap();
    let caches = ["a", "another-cache-with-a-longer-path"].map(|name| root.path().join(name));
    for cache in &caches {
        super::copy_parts(cache);
        let imports = "import state.order, state.clock, state.slow, state.files, state.process, state.random";
        let options = ["run", "-q", "--find-links", wheels.path(), "-c", imports];
        let run = Belljar::with_cache(cache).env("UV_NO_INDEX", "1").args(options).run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        let run = Belljar::with_cache(cache).arg("run").arg(&notebook).run();
        assert_eq!(run.status, Some(0), "{run:?}");
    }
    let [one, other] = caches.map(|cache| images(&cache));
    assert_eq!(one.len(), 3, "{one:?}");
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, image) in &one {
        assert_eq!(differences(image, &other[name]), None, "{name}");
    }
}

#[test]
fn image_does_not_depend_on_what_was_compiled_before() {
    let modules = [
        ("gradual/__init__.py", "from . import first\nimport importlib\nimportlib.import_module('gradual.dynamic')"),
        ("gradual/first.py", "names = [f'name {n}' for n in range(99)]"),
        ("gradual/dynamic.py", "def f(): return 'a', 'b', frozenset('abc')"),
        ("gradual/other.py", "from . import dynamic\ndef g(): return 'a', 'b'"),
    ];
    let wheels = Wheels::new().with("gradual", "1.0", &modules);
    let root = tempfile::tempdir().unwrap();
    let caches = ["a", "b"].map(|name| root.path().join(name));
    for (cache, programs) in caches.iter().zip([&["gradual"][..], &["gradual.other, gradual.dynamic", "gradual"]]) {
        super::copy_parts(cache);
        for program in programs {
            let code = format!("import {program}");
            let options = ["run", "-q", "--find-links", wheels.path(), "-c", &code];
            let run = Belljar::with_cache(cache).env("UV_NO_INDEX", "1").args(options).run();
            assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        }
    }
    let [one, other] = caches.map(|cache| cache_entries(&cache, "image-"));
    assert_eq!((one.len(), other.len()), (1, 2));
    let name = one[0].file_name().unwrap();
    let same = other.iter().find(|entry| entry.file_name() == Some(name)).unwrap();
    assert_eq!(differences(&one[0].join("packages.image"), &same.join("packages.image")), None);
}
