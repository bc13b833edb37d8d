//! Figures of plotly, and of objects that imitate matplotlib's hooks. `tests/capabilities` has a test with matplotlib.

use serde_json::{Value, json};

use super::{Session, fields};

/// A PNG file of one pixel.
const PNG: &str = "import struct, zlib\ndef chunk(kind, data):\n    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\nPNG = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(b'\\0\\0')) + chunk(b'IEND', b'')";

/// An imitation of the parts of matplotlib by which figures are found and drawn.
const MATPLOTLIB: &str = "
import sys, types
matplotlib, figure, pyplot = (types.ModuleType(name) for name in ('matplotlib', 'matplotlib.figure', 'matplotlib.pyplot'))
class Figure:
    def savefig(self, file, format, bbox_inches):
        assert (format, bbox_inches) == ('png', 'tight')
        file.write(PNG)
    def __repr__(self): return '<Figure size 640x480 with 1 Axes>'
Figure.__module__ = 'matplotlib.figure'
figure.Figure = Figure
figures = {}
pyplot.get_fignums = lambda: list(figures)
pyplot.figure = lambda number: figures.setdefault(number, Figure())
pyplot.close = lambda which: figures.clear()
matplotlib.figure, matplotlib.pyplot = figure, pyplot
sys.modules.update({module.__name__: module for module in (matplotlib, figure, pyplot)})
";

fn images(result: &Value) -> Vec<&Value> {
    result["content"].as_array().unwrap().iter().filter(|part| part["type"] == "image").collect()
}

fn call(session: &mut Session, code: &str) -> Value {
    let arguments = json!({ "code": code, "session_id": session.id });
    session.wire.tool("execute_code", arguments)
}

#[test]
fn figures_that_are_open_at_the_end_of_a_cell_are_shown_and_kept() {
    let mut session = Session::start([]);
    session.run(PNG);
    session.run(MATPLOTLIB);
    let result = call(&mut session, "pyplot.figure(1); pyplot.figure(2); print('drawn')");
    let answer = fields(&result);
    assert_eq!(images(&result).len(), 2, "{answer:#}");
    assert_eq!(images(&result)[0]["mimeType"], "image/png");
    assert!(result.get("structuredContent").is_none(), "many clients show nothing else where there is some");
    let output: Vec<&str> = answer["output"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let figure = "<Figure size 640x480 with 1 Axes>";
    assert_eq!(output[..3], ["drawn\n", figure, figure]);
    assert!(output[3].starts_with("📊 File created: inline_4_1.png (image/png, "), "{output:?}");
    assert_eq!(answer["files"][0]["uri"], format!("kernel://{}/inline_4_1.png", session.id));
    assert!(images(&call(&mut session, "1")).is_empty(), "it was closed");
    let result = call(&mut session, "pyplot.figure(3)\n1/0");
    assert_eq!(images(&result).len(), 1, "an error takes no figure away");
    let shown = call(&mut session, "f = Figure()\ndisplay(f)\nf");
    assert_eq!(images(&shown).len(), 2);
}

#[test]
fn objects_with_image_forms_are_shown() {
    let mut session = Session::start([]);
    session.run(PNG);
    let result = call(&mut session, "class Picture:\n    def _repr_png_(self): return PNG\nPicture()");
    assert_eq!(images(&result)[0]["mimeType"], "image/png");
    let result = call(
        &mut session,
        "from IPython.display import SVG, Image\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\nImage(PNG)",
    );
    let types: Vec<&Value> = images(&result).iter().map(|image| &image["mimeType"]).collect();
    assert_eq!(types, ["image/svg+xml", "image/png"]);
    let result = call(&mut session, "class Liar:\n    def _repr_png_(self): return b'no image'\nLiar()");
    assert!(images(&result).is_empty(), "{result:#}");
}

#[test]
fn a_figure_of_plotly_is_a_page_and_its_data() {
    let mut session = Session::start([]);
    let answer = session
        .run("import plotly.graph_objects as go\nfigure = go.Figure(go.Scatter(y=[1, 3, 2]))\nfigure.show()\nfigure");
    assert_eq!(answer["success"], true, "{answer:#}");
    let names: Vec<&str> =
        answer["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["plot_2_1.html", "plot_2_1.json", "plot_2_2.html", "plot_2_2.json"], "{answer:#}");
    assert_eq!(session.value("import json; json.load(open('plot_2_1.json'))['data'][0]['y']"), "[1, 3, 2]");
}

#[test]
fn a_figure_of_plotly_is_an_image_where_an_engine_is_installed() {
    let mut session = Session::start([]);
    // The files that `pip` would install, in a directory on Python's path.
    let install = "import os\nos.makedirs('kaleido')\nos.makedirs('kaleido-1.0.0.dist-info')\n\
        open('kaleido-1.0.0.dist-info/METADATA', 'w').write('Name: kaleido\\nVersion: 1.0.0\\n')\n\
        open('kaleido/errors.py', 'w').write('class ChromeNotFoundError(Exception): pass')";
    session.run(install);
    let engine = include_str!("../../sessions/kaleido.py");
    session.run(&format!("open('kaleido/__init__.py', 'w').write({})", json!(engine)));
    let code = "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 3, 2]), go.Layout(width=30, height=20))";
    let result = call(&mut session, code);
    let answer = fields(&result);
    assert_eq!(images(&result).len(), 1, "{answer:#}");
    let kept: Vec<&Value> = answer["files"].as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert_eq!(kept, ["inline_4_1.png"], "{answer:#}");
    let size = "import struct; struct.unpack('>II', open('inline_4_1.png', 'rb').read()[16:24])";
    assert_eq!(session.value(size), "(30, 20)");
    // An engine that fails leaves the page and the data.
    let broken = "import kaleido; kaleido.calc_fig_sync = None\ngo.Figure(go.Scatter(y=[1, 2]))";
    let answer = session.run(broken);
    assert_eq!((&answer["success"], answer["files"].as_array().unwrap().len()), (&json!(true), 2), "{answer:#}");
}
