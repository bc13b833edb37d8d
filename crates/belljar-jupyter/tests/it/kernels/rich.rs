//! What data people show: tables, figures, formulas. Pictures are looked at.

use base64::Engine as _;
use belljar_core::kernel::Bundle;
use libtest_mimic::Trial;

use crate::trials::harness::{Session, in_each, in_each_but_weak};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("a_table_has_text_and_html", a_table_has_text_and_html),
        in_each("figures_of_matplotlib_are_pictures", figures_of_matplotlib_are_pictures),
        in_each("figures_of_seaborn_are_pictures", figures_of_seaborn_are_pictures),
        in_each("figures_of_plotly_are_pages_with_data", figures_of_plotly_are_pages_with_data),
        in_each_but_weak("figures_of_plotly_are_pictures_where_there_is_a_browser", figures_of_plotly_are_pictures),
        in_each("formulas_of_sympy_have_latex", formulas_of_sympy_have_latex),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn a_table_has_text_and_html(session: &mut Session) {
    let shown = session.shown("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})");
    assert_eq!(shown[0]["text/plain"], "   a  b\n0  1  x\n1  2  y");
    assert!(shown[0]["text/html"].as_str().unwrap().contains("<table"));
}

fn figures_of_matplotlib_are_pictures(session: &mut Session) {
    let shown = session.shown(
        "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\nplt.figure()\nplt.bar([1, 2], [3, 4]);",
    );
    assert_eq!(shown.len(), 2, "one that is shown, and one that is open at the end: {shown:?}");
    shown.iter().for_each(assert_is_picture);
}

fn figures_of_seaborn_are_pictures(session: &mut Session) {
    let code = "import pandas as pd, seaborn as sns\n\
                sns.scatterplot(pd.DataFrame({'x': [1, 2, 3], 'y': [2, 1, 3], 'kind': list('aba')}), x='x', y='y', hue='kind');";
    assert_is_picture(session.shown(code).last().unwrap());
}

fn figures_of_plotly_are_pages_with_data(session: &mut Session) {
    for show in ["figure", "figure.show()", "display(figure)"] {
        let code = format!("import plotly.graph_objects as go\nfigure = go.Figure(go.Scatter(y=[1, 4, 2]))\n{show}");
        let shown = session.shown(&code);
        assert_eq!(shown.len(), 1, "{show}: {shown:?}");
        if shown[0].contains_key("image/png") {
            // This machine has a browser, which is another test's.
            continue;
        }
        assert!(shown[0]["text/html"].as_str().unwrap().contains("Plotly.newPlot"), "{show}");
        assert_eq!(shown[0]["application/vnd.plotly.v1+json"]["data"][0]["y"], serde_json::json!([1, 4, 2]), "{show}");
    }
}

/// Browsers that kaleido finds, by the names of their programs.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

fn figures_of_plotly_are_pictures(session: &mut Session) {
    let has = |name: &&str| std::path::Path::new("/usr/bin").join(name).exists();
    if !BROWSERS.iter().any(has) {
        eprintln!("SKIPPED: figures_of_plotly_are_pictures: there is no browser in /usr/bin ({})", BROWSERS.join(", "));
        return;
    }
    let code =
        "import plotly.graph_objects as go\nfigure = go.Figure(go.Scatter(y=[1, 4, 2]))\nfigure.to_image('png')[1:4]";
    assert_eq!(session.text(code), "b'PNG'");
    for show in ["figure", "figure.show()", "display(figure)"] {
        let shown = session.shown(show);
        assert_eq!(shown.len(), 1, "{show}: {shown:?}");
        assert_is_picture(&shown[0]);
    }
}

fn formulas_of_sympy_have_latex(session: &mut Session) {
    let shown = session.shown("import sympy\nx = sympy.Symbol('x')\nsympy.integrate(sympy.sin(x) ** 2, x)");
    assert_eq!(shown[0]["text/plain"], "x/2 - sin(x)*cos(x)/2");
    assert!(shown[0]["text/latex"].as_str().unwrap().contains("\\frac{x}{2}"), "{shown:?}");
}

/// Decodes the picture and looks at it: it has a size, and is not all of one colour.
#[track_caller]
fn assert_is_picture(bundle: &Bundle) {
    let text = bundle["image/png"].as_str().unwrap().replace('\n', "");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width > 200 && info.height > 150, "{}x{}", info.width, info.height);
    let mut colors: Vec<&[u8]> = pixels.chunks(info.color_type.samples()).collect();
    colors.sort_unstable();
    colors.dedup();
    assert!(colors.len() > 10, "{} colours", colors.len());
}
