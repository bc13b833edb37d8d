//! Native kernels in Jupyter's own programs.

use crate::jupyter::Installed;
use crate::native_calls::ENVIRONMENTS;

belljar_testing::trials! {
    jupyter_kernel_test_and_nbclient_pass_with_native_kernels: [NativeSandbox],
}

fn jupyter_kernel_test_and_nbclient_pass_with_native_kernels() {
    let environments = ENVIRONMENTS.to_str().unwrap();
    let installed = Installed::with_arguments(&["--sandbox", "native", "--", "--native-dir", environments]);
    let output = installed.run("conformance.py", &[]);
    assert!(output.contains("Ran 13 tests") && !output.contains("skipped"), "{output}");
    installed.run("notebook.py", &[]);
}
