//! Network access of code by packages that only Pyodide's distribution has.

use crate::network_servers::site;

belljar_testing::trials! {
    pandas_reads_a_table_from_a_server: [PyodideCdn],
}

fn pandas_reads_a_table_from_a_server() {
    let code = "import pandas as pd\nfor base in ('https://api.example.com:PORT_https', 'http://api.example.com:PORT_http'):\n    \
                print(pd.read_csv(base + '/csv').value.sum())";
    let run = site().run(code);
    assert_eq!(run.stdout, "3\n3\n", "{}", run.stderr);
}
