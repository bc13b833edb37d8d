//! Servers that are killed while cells wait, ask and sleep.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Fixture, fields, kill, open, question, reply, run, runs, send_cell, wait_until_waiting};

/// The number of kills, unless `BELLJAR_RANDOM_KILLS` has another one.
const KILLS: u32 = 40;
/// The longest time that a question is left open: the interval at which cells are put to sleep, and a bit more.
const LONG_PAUSE: u32 = 1_200_000;

/// Draws the time before the next action, in microseconds: mostly shorter than that of a request, and sometimes such
/// that the cell is put to sleep before, after or at the same time.
struct Pauses(u32);

impl Pauses {
    fn draw(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn pause(&mut self) {
        let longest = if self.draw().is_multiple_of(10) { LONG_PAUSE } else { 20_000 };
        std::thread::sleep(Duration::from_micros(u64::from(self.draw() % longest)));
    }
}

/// Each round kills the server at a random point of a cell that asks, sends and sleeps.
#[test]
fn runs_survive_kills_at_random_points() {
    let kills = std::env::var("BELLJAR_RANDOM_KILLS").map_or(KILLS, |number| number.parse().unwrap());
    let fixture = Fixture::new(&["--sleep-after", "0.1"]);
    let code = "from tools import t\nfor n in range(3):\n    await t.append(text=f'{name} {n}')\nname";
    let mut pauses = Pauses(12345);
    for round in 0..kills {
        let before = fixture.calls().len();
        let mut wire = fixture.serve();
        let id = open(&mut wire);
        run(&mut wire, &id, &format!("name = 'r{round}'"));
        send_cell(&mut wire, &id, code);
        for _ in 0..pauses.draw() % 3 {
            let asked = question(&mut wire);
            pauses.pause();
            reply(&mut wire, &asked, "yes");
        }
        question(&mut wire);
        wait_until_waiting(&mut wire);
        fixture.wait_until_saved(&id);
        pauses.pause();
        kill(wire);

        let mut wire = fixture.serve();
        let mine: Vec<Value> = runs(&mut wire).into_iter().filter(|run| run["session_id"] == id.as_str()).collect();
        assert_eq!(mine.len(), 1, "round {round}: a run is lost without a trace");
        let resumed =
            wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": mine[0]["run_id"] } }));
        let answer = loop {
            let message = wire.next().unwrap();
            if message["method"] == "elicitation/create" {
                pauses.pause();
                reply(&mut wire, &message, "yes");
            } else if message["id"] == resumed {
                break fields(&message["result"]);
            }
        };
        // Each server was killed while the cell waited for an approval: none is lost, and no call is sent twice.
        assert_eq!(answer["result"], format!("'r{round}'"), "round {round}: {answer:#}");
        let expected: Vec<String> = (0..3).map(|n| format!("append r{round} {n}")).collect();
        assert_eq!(fixture.calls()[before..], expected, "round {round}");
        wire.tool("clear_session", json!({ "session_id": id }));
        kill(wire);
    }
}
