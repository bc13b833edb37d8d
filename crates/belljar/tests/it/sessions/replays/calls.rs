//! Calls of tools without `await`, in cells that are replayed.

use super::super::durable::{Fixture, kill, open, question, reply, result_of_only_run, runs, send_cell, wait_for};
use super::{answer, attend, message};

in_both_isolations! {
    calls_without_await_are_approved_in_the_next_server_and_sent_once
    call_that_was_sent_is_not_sent_twice
    loop_of_its_own_goes_on_with_its_timers
    replies_that_the_code_has_not_received_survive
}

fn calls_without_await_are_approved_in_the_next_server_and_sent_once(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "from tools import t\nprint('before')\none = t.append(text='a').result()\nprint(one)\n\
                two = t.append(text='b').result()\nprint(two)\n[one, two]";
    send_cell(&mut wire, &id, code);
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    let asked = question(&mut wire);
    assert!(message(&asked).contains("\"b\""), "{asked}");
    let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    kill(wire);
    assert!(fixture.belljar(&["approve", &run_id]).status == Some(0));
    let mut wire = fixture.serve();
    wait_for(|| runs(&mut wire)[0]["status"] == "completed");
    let result = result_of_only_run(&mut wire);
    assert_eq!(result["result"], "['call 1', 'call 2']", "{result:#}");
    assert_eq!(result["output"][0], "before\ncall 1\ncall 2\n", "{result:#}");
    assert_eq!(result["calls"].as_array().unwrap().len(), 2, "{result:#}");
    assert_eq!(fixture.calls(), ["append a", "append b"]);
}

fn call_that_was_sent_is_not_sent_twice(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation, "--approve", "none"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import tools\nfrom tools import t\nfirst = t.append(text='a').result()\n\
                try:\n    t.hang_append(text='b').result()\nexcept tools.ToolInterrupted:\n    print('interrupted')\nfirst";
    send_cell(&mut wire, &id, code);
    wait_for(|| fixture.calls().len() == 2 && fixture.data().join(&id).join("waiting").exists());
    kill(wire);
    let mut wire = fixture.serve();
    let result = result_of_only_run(&mut wire);
    assert_eq!(result["output"][0], "interrupted\n", "{result:#}");
    assert_eq!(result["result"], "'call 1'", "{result:#}");
    assert_eq!(fixture.calls(), ["append a", "hang_append b"]);
}

fn loop_of_its_own_goes_on_with_its_timers(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import asyncio, threading\nfrom tools import t\n\
                async def main():\n    return await asyncio.gather(t.append(text='a'), asyncio.sleep(1.5, 'slept'))\n\
                out = []\nthread = threading.Thread(target=lambda: out.append(asyncio.run(main())))\n\
                thread.start(); thread.join()\nout";
    send_cell(&mut wire, &id, code);
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let result = answer(&mut wire, &asked, "yes", call);
    assert_eq!(result["result"], "[['call 1', 'slept']]", "{result:#}");
    assert_eq!(fixture.calls(), ["append a"]);
}

fn replies_that_the_code_has_not_received_survive(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import asyncio\nfrom tools import t\nasync def main():\n\
                \x20   task = asyncio.ensure_future(t.append(text='a'))\n    await asyncio.sleep(0.01)\n\
                \x20   two = t.append(text='b').result()\n    return await task, two\nasyncio.run(main())";
    send_cell(&mut wire, &id, code);
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    let asked = question(&mut wire);
    assert!(message(&asked).contains("\"b\""), "{asked}");
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let result = answer(&mut wire, &asked, "yes", call);
    assert_eq!(result["result"], "('call 1', 'call 2')", "{result:#}");
    assert_eq!(fixture.calls(), ["append a", "append b"]);
}
