//! matplotlib itself in a WebAssembly session. Only Pyodide's CDN has its wheels.

use serde_json::{Value, json};

use crate::wire::Wire;

belljar_testing::trials! {
    matplotlib_figures_are_images: [PyodideCdn],
}

fn matplotlib_figures_are_images() {
    let mut wire = Wire::start(["--toolset", "interpreter"]);
    let first = wire.tool("execute_code", json!({ "code": "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])" }));
    let answer: Value = serde_json::from_str(first["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(answer["success"], true, "{answer:#}");
    let session = &answer["session_info"]["session_id"];
    let mut images = |code: &str| {
        let result = wire.tool("execute_code", json!({ "code": code, "session_id": session }));
        let count = result["content"].as_array().unwrap().iter().filter(|part| part["type"] == "image").count();
        (count, result)
    };
    let (count, result) = images("plt.plot([3, 1, 2]); plt.savefig('saved.png'); plt.show()");
    assert!(count > 0, "{result:#}");
    let (count, result) = images("%matplotlib inline\nplt.plot([1, 2])");
    assert_eq!(count, 1, "{result:#}");
}
