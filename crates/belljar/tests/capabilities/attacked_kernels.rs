//! The attacks of `tests/attacks` on native kernels.

use crate::attacks;
use crate::native_calls::ENVIRONMENTS;

macro_rules! trials_of {
    ($($group:ident)*) => {
        belljar_testing::trials! {
            $($group: [NativeSandbox],)*
        }

        $(fn $group() {
            attack(stringify!($group));
        })*
    };
}

trials_of!(files processes network environment memory resources host_calls traces results imports);

fn attack(group: &str) {
    let environments = ENVIRONMENTS.display().to_string();
    attacks::run_group(group, &["--sandbox", "native", "--native-dir", &environments]);
}
