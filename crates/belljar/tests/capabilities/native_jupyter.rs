//! Native kernels in Jupyter's own programs.

use crate::jupyter::Installed;
use crate::native_calls::ENVIRONMENTS;
use crate::tool_client::tool_server;

belljar_testing::trials! {
    jupyter_kernel_test_and_nbclient_pass_with_native_kernels: [NativeSandbox],
    cells_of_native_kernels_call_tools: [NativeSandbox],
}

fn jupyter_kernel_test_and_nbclient_pass_with_native_kernels() {
    let environments = ENVIRONMENTS.to_str().unwrap();
    let installed = Installed::with_arguments(&["--sandbox", "native", "--", "--native-dir", environments]);
    let output = installed.run("conformance.py", &[]);
    assert!(output.contains("Ran 13 tests") && !output.contains("skipped"), "{output}");
    installed.run("notebook.py", &[]);
}

fn cells_of_native_kernels_call_tools() {
    let (environments, server) = (ENVIRONMENTS.to_str().unwrap(), tool_server("t", "plain"));
    let arguments = ["--sandbox", "native", "--", "--native-dir", environments, &server];
    Installed::with_arguments(&arguments).run("tools.py", &[]);
}
