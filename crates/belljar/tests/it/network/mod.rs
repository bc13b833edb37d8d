//! Network access of code, with real servers on loopback: libraries, protocols, the policy, secrets, and attacks.

/// Declares tests that are run with each isolation of interpreters, whose name they get.
macro_rules! in_both_isolations {
    ($($name:ident)*) => {
        mod thread {
            $(
                #[test]
                fn $name() {
                    super::$name("thread");
                }
            )*
        }

        #[cfg(target_os = "linux")]
        mod process {
            $(
                #[test]
                fn $name() {
                    super::$name("process");
                }
            )*
        }
    };
}

mod attacks;
mod cases;
mod documented;
mod libraries;
mod policy;
mod protocols;
mod secrets;
mod sessions;
