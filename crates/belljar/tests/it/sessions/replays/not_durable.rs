//! Cells that hold their thread while they wait, and are lost with their server, or refused by the next one.

use serde_json::Value;

use super::super::durable::{Fixture, kill, open, question, reply, run, runs, send_cell};
use super::{answer, attend};
use crate::wheels::Wheels;

in_both_isolations! {
    cell_with_a_recording_beyond_its_limit_is_lost_and_says_so
    changed_byte_of_a_recording_is_refused
    cell_that_reads_a_directory_of_the_host_waits_in_its_process_only
    cell_with_a_folder_waits_in_its_process_only
    cell_that_installs_a_package_waits_in_its_process_only
}

fn cell_with_a_recording_beyond_its_limit_is_lost_and_says_so(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation, "--replay-memory", "4KB"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "import os\nx = 1");
    send_cell(&mut wire, &id, "x = os.urandom(5000)\ninput('?')");
    question(&mut wire);
    let listed = runs(&mut wire);
    assert!(listed[0]["note"].as_str().unwrap().contains("longer than the limit"), "{listed:?}");
    assert!(!fixture.data().join(&id).join("waiting").exists());
    kill(wire);
    let mut wire = fixture.serve();
    assert_eq!(run(&mut wire, &id, "x")["result"], "1");
    assert_eq!(runs(&mut wire), [] as [Value; 0]);
    // A shorter one survives.
    send_cell(&mut wire, &id, "x = 2\n(input('?'), x)");
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    assert_eq!(answer(&mut wire, &asked, "a", call)["result"], "('a', 2)");
}

fn changed_byte_of_a_recording_is_refused(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    send_cell(&mut wire, &id, "x = 2\ninput('?')");
    question(&mut wire);
    kill(wire);
    let path = fixture.data().join(&id).join("waiting");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let result = answer(&mut wire, &asked, "a", call);
    assert!(result["error"].as_str().unwrap().contains("it does not match its checksum"), "{result:#}");
    assert_eq!(run(&mut wire, &id, "x")["result"], "1");
}

fn cell_that_reads_a_directory_of_the_host_waits_in_its_process_only(isolation: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.txt"), "data").unwrap();
    let fixture = Fixture::new(&["--isolation", isolation, "--mount", &format!("{}:/data", folder.path().display())]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "open('/data/data.txt').read() + input('?')");
    let asked = question(&mut wire);
    let listed = runs(&mut wire);
    let note =
        "the run does not survive the end of the server while it holds its thread: it used a directory of the host";
    assert_eq!(listed[0]["note"], note, "{listed:?}");
    reply(&mut wire, &asked, "!");
    let cell = send_cell(&mut wire, &id, "input('?')");
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    assert_eq!(answer(&mut wire, &asked, "x", call)["result"], "'x'", "{cell}");
}

fn cell_with_a_folder_waits_in_its_process_only(isolation: &str) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Fixture::new(&["--isolation", isolation, "--files", folder.path().to_str().unwrap()]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "open('data.txt', 'w').write('data')\ninput('?')");
    question(&mut wire);
    let listed = runs(&mut wire);
    assert!(listed[0]["note"].as_str().unwrap().contains("a directory of the host"), "{listed:?}");
}

fn cell_that_installs_a_package_waits_in_its_process_only(isolation: &str) {
    let wheels = Wheels::new().with("laterinstalled", "1.0", &[("laterinstalled.py", "x = 1")]);
    let fixture = Fixture::new(&["--isolation", isolation, "--offline", "--find-links", wheels.path()]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "%pip install -q laterinstalled\n__import__('later' + 'installed').x, input('?')";
    let call = send_cell(&mut wire, &id, code);
    let asked = question(&mut wire);
    let listed = runs(&mut wire);
    assert!(listed[0]["note"].as_str().unwrap().ends_with("it installed a package while it ran"), "{listed:?}");
    assert_eq!(answer(&mut wire, &asked, "a", call)["result"], "(1, 'a')");
    // The next cell has the package before it begins, and survives.
    send_cell(&mut wire, &id, "import laterinstalled\nlaterinstalled.x, input('?')");
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    assert_eq!(answer(&mut wire, &asked, "b", call)["result"], "(1, 'b')");
}
