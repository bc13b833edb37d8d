//! Signers of requests to the storage of clouds, which refuse to sign (`patches/README.md`).

#![forbid(unsafe_code)]

use std::fmt::{self, Display};

/// The error of each request that would have to be signed.
#[derive(Debug)]
pub struct Error;

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("signing requests to a package index in the storage of a cloud is not supported")
    }
}

impl std::error::Error for Error {}

/// Defines the signer of a cloud.
macro_rules! signer {
    () => {
        use std::time::Duration;

        use crate::Error;

        /// A signer that refuses.
        #[derive(Debug, Clone)]
        pub struct DefaultSigner;

        impl DefaultSigner {
            /// Refuses to sign a request.
            ///
            /// # Errors
            /// Fails for each request.
            pub async fn sign<R>(&self, _request: &mut R, _expires: Option<Duration>) -> Result<(), Error> {
                Err(Error)
            }
        }
    };
}

/// The storage of Amazon Web Services.
pub mod aws {
    signer!();

    /// Returns the signer for a service in a region.
    pub fn default_signer(_service: &str, _region: &str) -> DefaultSigner {
        DefaultSigner
    }
}

/// The storage of Azure.
pub mod azure {
    signer!();

    /// Returns the signer.
    pub fn default_signer() -> DefaultSigner {
        DefaultSigner
    }
}

/// The storage of Google Cloud.
pub mod google {
    signer!();

    /// Returns the signer for a service.
    pub fn default_signer(_service: &str) -> DefaultSigner {
        DefaultSigner
    }
}
