//! Tests that are run with each isolation of interpreters.

/// The isolations of interpreters on this system.
pub(crate) const ISOLATIONS: &[&str] = if cfg!(target_os = "linux") { &["thread", "process"] } else { &["thread"] };

/// Declares tests that are run with each isolation of interpreters, whose name they get.
macro_rules! in_both_isolations {
    ($($(#[$attribute:meta])* $name:ident)*) => {
        mod thread {
            $(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    super::$name("thread");
                }
            )*
        }

        #[cfg(target_os = "linux")]
        mod process {
            $(
                $(#[$attribute])*
                #[test]
                fn $name() {
                    super::$name("process");
                }
            )*
        }
    };
}
