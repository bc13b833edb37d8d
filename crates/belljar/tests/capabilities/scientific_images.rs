//! numpy and pandas in images: their generators are seeded in each run. Only Pyodide's CDN has their wheels.

use crate::harness::Belljar;

belljar_testing::trials! {
    numpy_and_pandas_are_in_images_and_draw_other_numbers: [PyodideCdn],
}

fn numpy_and_pandas_are_in_images_and_draw_other_numbers() {
    let code = "import sys
loaded = [name in sys.modules for name in ('numpy', 'numpy.random', 'pandas')]
import numpy, pandas
print(loaded, numpy.random.random(), numpy.random.default_rng().random(), pandas.Series(range(99)).sample(9).tolist())";
    let outputs = [(); 2].map(|()| Belljar::run_with(["-q", "-c", code]).stdout);
    assert!(outputs.iter().all(|output| output.starts_with("[True, True, True] ")), "{outputs:?}");
    assert_ne!(outputs[0], outputs[1]);
}
