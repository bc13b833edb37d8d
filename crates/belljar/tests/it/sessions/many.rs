//! Many sessions at once, each with its own state.

use std::collections::BTreeMap;

use serde_json::json;

use super::{fields, serve};

const MANY: usize = 200;

#[test]
fn two_hundred_concurrent_sessions_stay_isolated() {
    let mut wire = serve(["--max-queue", "1000"]);
    let asked: Vec<u64> = (0..MANY)
        .map(|n| {
            let code = format!("mine = {n}\nopen('mine.txt', 'w').write('{n}')\nimport random\nmine");
            wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code } }))
        })
        .collect();
    let mut sessions = BTreeMap::new();
    for (n, id) in asked.into_iter().enumerate() {
        let answer = fields(&wire.answer(id)["result"]);
        assert_eq!(answer["result"], n.to_string(), "{answer:#}");
        let session = answer["session_info"]["session_id"].as_str().unwrap().to_owned();
        assert_eq!(sessions.insert(session, n), None);
    }
    assert_eq!(sessions.len(), MANY);
    for round in 1..=2 {
        let asked: Vec<(u64, usize)> = sessions
            .iter()
            .map(|(session, n)| {
                let code = "mine += 1000\n(mine, open('mine.txt').read())";
                let arguments = json!({ "code": code, "session_id": session });
                (wire.send("tools/call", json!({ "name": "execute_code", "arguments": arguments })), *n)
            })
            .collect();
        for (id, n) in asked {
            let answer = fields(&wire.answer(id)["result"]);
            assert_eq!(answer["result"], format!("({}, '{n}')", n + 1000 * round), "{answer:#}");
        }
    }
}
