//! Sessions that continue in the image of an earlier build, whose copy the data directory keeps.

use std::path::Path;
use std::process::Stdio;

use super::{fields, open, run, serve};
use crate::harness::Belljar;
use crate::wire::Wire;

use serde_json::json;

/// Starts a server whose image of sessions contains another IPython, as that of an earlier build would.
fn serve_earlier(isolation: &str, cache: &Path, data: &Path) -> Wire {
    let constraints = cache.join("constraints.txt");
    std::fs::write(&constraints, "ipython==9.1.0\n").unwrap();
    let data = data.to_str().unwrap();
    let options = ["stdio", "--toolset", "interpreter", "--isolation", isolation, "--data-dir", data];
    let mut command = Belljar::with_cache(cache).env("UV_CONSTRAINT", &constraints).args(options).into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

fn end(mut wire: Wire) {
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
}

/// Returns the names of the kept images.
fn kept(data: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data.join("bases")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "lock").collect()
}

in_both_isolations! {
    session_of_an_earlier_build_continues_until_it_is_cleared
    changed_kept_image_is_refused
}

fn session_of_an_earlier_build_continues_until_it_is_cleared(isolation: &str) {
    let (cache, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    crate::packages::copy_parts(cache.path());
    let mut wire = serve_earlier(isolation, cache.path(), data.path());
    let ids = [open(&mut wire), open(&mut wire)];
    for id in &ids {
        run(&mut wire, id, "import IPython, json\nx = {'a': [1]}\nopen('f.txt', 'w').write('f')");
    }
    end(wire);
    let [earlier] = &kept(data.path())[..] else { panic!("{:?}", kept(data.path())) };
    // The earlier build and its cache are gone.
    drop(cache);
    let options = ["--data-dir", data.path().to_str().unwrap(), "--isolation", isolation];
    let check = "x['a'].append(2)\n(IPython.__version__, json.dumps(x), open('f.txt').read())";
    for result in [r#"('9.1.0', '{"a": [1, 2]}', 'f')"#, r#"('9.1.0', '{"a": [1, 2, 2]}', 'f')"#] {
        let mut wire = serve(options);
        let answer = run(&mut wire, &ids[0], check);
        assert_eq!(answer["result"], result, "{answer:#}");
        end(wire);
    }
    let mut wire = serve(options);
    let new = open(&mut wire);
    let answer = run(&mut wire, &new, "import IPython; IPython.__version__ != '9.1.0'");
    assert_eq!(answer["result"], "True", "{answer:#}");
    let forked = fields(&wire.tool("fork_session", json!({ "session_id": ids[0] })));
    let forked = forked["session_id"].as_str().unwrap().to_owned();
    assert_eq!(run(&mut wire, &forked, "x")["result"], "{'a': [1, 2, 2]}");
    let restarted = fields(&wire.tool("restart_session", json!({ "session_id": ids[0] })));
    assert_eq!(restarted["success"], true, "{restarted:#}");
    assert_eq!(run(&mut wire, &ids[0], "open('f.txt').read(), 'x' in globals()")["result"], "('f', False)");
    for id in [&ids[0], &forked] {
        wire.tool("clear_session", json!({ "session_id": id }));
        assert!(kept(data.path()).contains(earlier), "another session needs the image");
    }
    end(wire);
    // The last session that needs it is removed on the command line.
    let removed = Belljar::new().args(["sessions", "rm", &ids[1]]).args(&options[..2]).run();
    assert_eq!(removed.status, Some(0), "{removed:?}");
    assert!(!kept(data.path()).contains(earlier));
    assert_eq!(kept(data.path()).len(), 1, "the image of the other session");
}

fn changed_kept_image_is_refused(isolation: &str) {
    let (cache, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    crate::packages::copy_parts(cache.path());
    let mut wire = serve_earlier(isolation, cache.path(), data.path());
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    end(wire);
    let earlier = data.path().join("bases").join(&kept(data.path())[0]);
    let options = ["--data-dir", data.path().to_str().unwrap(), "--isolation", isolation];
    let error = || {
        let mut wire = serve(options);
        let answer = run(&mut wire, &id, "x");
        end(wire);
        answer["error"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
    };
    let about = std::fs::read_to_string(earlier.join("about.json")).unwrap();
    std::fs::write(earlier.join("about.json"), about.replace(r#""protocol":"#, r#""protocol":9"#)).unwrap();
    let message = error();
    assert!(
        message.contains("which this build cannot run") && message.contains("belljar sessions export"),
        "{message}"
    );
    std::fs::write(earlier.join("about.json"), about).unwrap();
    let image = std::fs::read(earlier.join("image.zst")).unwrap();
    std::fs::write(earlier.join("image.zst"), &image[..image.len() / 2]).unwrap();
    let message = error();
    assert!(message.contains("kept image"), "{message}");
    std::fs::remove_dir_all(&earlier).unwrap();
    let message = error();
    assert!(message.contains("saved by another build"), "{message}");
}
