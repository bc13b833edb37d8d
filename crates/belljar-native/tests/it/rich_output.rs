//! Tests of rich output: tables, figures, formulas. Images are decoded.

use base64::Engine as _;
use belljar_core::mime::MimeBundle;
use belljar_sandbox::Policy;
use belljar_testing::{Capability, Trial};

use crate::trials::harness::{Session, in_each, in_policies};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("tables_have_text_and_html", tables_have_text_and_html),
        in_each("matplotlib_figures_are_images", matplotlib_figures_are_images),
        in_each("seaborn_figures_are_images", seaborn_figures_are_images),
        in_each("plotly_figures_are_html_with_data", plotly_figures_are_html_with_data),
        // kaleido connects to the browser, which the weak sandbox refuses.
        in_policies(
            &[Policy::Full, Policy::Unsandboxed],
            "plotly_figures_are_images_with_a_browser",
            &[Capability::Browser],
            plotly_figures_are_images,
        ),
        in_each("sympy_formulas_have_latex", sympy_formulas_have_latex),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn tables_have_text_and_html(session: &mut Session) {
    let shown = session.shown("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})");
    assert_eq!(shown[0]["text/plain"], "   a  b\n0  1  x\n1  2  y");
    assert!(shown[0]["text/html"].as_str().unwrap().contains("<table"));
}

fn matplotlib_figures_are_images(session: &mut Session) {
    let shown = session.shown(
        "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()\nplt.figure()\nplt.bar([1, 2], [3, 4]);",
    );
    assert_eq!(shown.len(), 2, "one figure is shown, and one is open at the end: {shown:?}");
    shown.iter().for_each(assert_is_image);
}

fn seaborn_figures_are_images(session: &mut Session) {
    let code = "import pandas as pd, seaborn as sns\n\
                sns.scatterplot(pd.DataFrame({'x': [1, 2, 3], 'y': [2, 1, 3], 'kind': list('aba')}), x='x', y='y', hue='kind');";
    assert_is_image(session.shown(code).last().unwrap());
}

fn plotly_figures_are_html_with_data(session: &mut Session) {
    for show in ["figure", "figure.show()", "display(figure)"] {
        let code = format!("import plotly.graph_objects as go\nfigure = go.Figure(go.Scatter(y=[1, 4, 2]))\n{show}");
        let shown = session.shown(&code);
        assert_eq!(shown.len(), 1, "{show}: {shown:?}");
        if shown[0].contains_key("image/png") {
            // With a browser: see `plotly_figures_are_images`.
            continue;
        }
        assert!(shown[0]["text/html"].as_str().unwrap().contains("Plotly.newPlot"), "{show}");
        assert_eq!(shown[0]["application/vnd.plotly.v1+json"]["data"][0]["y"], serde_json::json!([1, 4, 2]), "{show}");
    }
}

fn plotly_figures_are_images(session: &mut Session) {
    let code =
        "import plotly.graph_objects as go\nfigure = go.Figure(go.Scatter(y=[1, 4, 2]))\nfigure.to_image('png')[1:4]";
    assert_eq!(session.text(code), "b'PNG'");
    for show in ["figure", "figure.show()", "display(figure)"] {
        let shown = session.shown(show);
        assert_eq!(shown.len(), 1, "{show}: {shown:?}");
        assert_is_image(&shown[0]);
    }
}

fn sympy_formulas_have_latex(session: &mut Session) {
    let shown = session.shown("import sympy\nx = sympy.Symbol('x')\nsympy.integrate(sympy.sin(x) ** 2, x)");
    assert_eq!(shown[0]["text/plain"], "x/2 - sin(x)*cos(x)/2");
    assert!(shown[0]["text/latex"].as_str().unwrap().contains("\\frac{x}{2}"), "{shown:?}");
}

/// Decodes the image, and checks that it is not small and has more than ten colors.
#[track_caller]
fn assert_is_image(bundle: &MimeBundle) {
    let text = bundle["image/png"].as_str().unwrap().replace('\n', "");
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert!(info.width > 200 && info.height > 150, "{}x{}", info.width, info.height);
    let mut colors: Vec<&[u8]> = pixels.chunks(info.color_type.samples()).collect();
    colors.sort_unstable();
    colors.dedup();
    assert!(colors.len() > 10, "{} colors", colors.len());
}
