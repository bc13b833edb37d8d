//! Values of packages in feeds of Monty's protocol. Only Pyodide's CDN has numpy and pandas.

use belljar_testing::install::run;

use crate::monty_worker::{WorkerProgram, script};

belljar_testing::trials! {
    values_of_numpy_and_pandas_reach_the_client: [PyodideCdn],
}

fn values_of_numpy_and_pandas_reach_the_client() {
    run(script("package_values.py").arg(WorkerProgram::new().path()));
}
