//! The attacks of `tests/attacks` on native kernels, but for requests that only the guest in WebAssembly can forge.

use crate::attacks;
use crate::native_calls::ENVIRONMENTS;
use crate::tool_client::tool_server;

macro_rules! trials_of {
    ($($group:ident)*) => {
        belljar_testing::trials! {
            $($group: [NativeSandbox],)*
            native_host_calls: [NativeSandbox],
        }

        $(fn $group() {
            attack(stringify!($group), &[]);
        })*
    };
}

trials_of!(files processes network environment memory resources traces results imports);

fn native_host_calls() {
    // With a server of tools, kernels have a socket for calls of functions.
    attack("native_host_calls", &[&tool_server("t", "plain"), "--approve", "none"]);
}

fn attack(group: &str, options: &[&str]) {
    let environments = ENVIRONMENTS.display().to_string();
    attacks::run_group(group, &[&["--sandbox", "native", "--native-dir", environments.as_str()], options].concat());
}
