//! SIGHUP, with which a service manager asks a server to read its files again.

use belljar_server::HttpOptions;
use belljar_sessions::Tenants;

use crate::access::AccessOptions;
use crate::quotas::{QuotaOptions, name_tokens};

/// The files that a server reads again, and those who use them.
pub(crate) struct Reload {
    pub(crate) access: AccessOptions,
    pub(crate) options: HttpOptions,
    pub(crate) quotas: QuotaOptions,
    pub(crate) tenants: Tenants,
    /// Set if code runs in native kernels, to which some quotas do not apply.
    pub(crate) has_kernels: bool,
}

impl Reload {
    /// Reads the files again whenever the process receives SIGHUP.
    pub(crate) async fn on_hangup(self) {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
            while hangup.recv().await.is_some() {
                match self.access.reload(&self.options) {
                    Ok(true) => {
                        name_tokens(&self.tenants, &self.options.access.tokens);
                        eprintln!("belljar: read the tokens and the certificate again");
                    }
                    Ok(false) => eprintln!("belljar: SIGHUP: there are no tokens and no certificate to read again"),
                    Err(error) => eprintln!("belljar: kept the tokens and the certificate as they were: {error}"),
                }
                match self.quotas.reload(&self.tenants, self.has_kernels) {
                    Ok(true) => eprintln!("belljar: read the quotas again"),
                    Ok(false) => {}
                    Err(error) => eprintln!("belljar: kept the quotas as they were: {error}"),
                }
            }
        }
    }
}
