//! SIGHUP, with which a service manager asks a server to read its files again.

use belljar_server::HttpOptions;
use belljar_sessions::Tenants;

use crate::access::AccessOptions;
use crate::command_error::CommandError;
use crate::notices::{self, Level};
use crate::os;
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
        os::for_each_hangup(move || self.read_again()).await;
    }

    /// Reads the files again, and reports what has come of it.
    fn read_again(&self) {
        match self.access.reload(&self.options) {
            Ok(true) => {
                name_tokens(&self.tenants, &self.options.access.tokens);
                report("read the tokens and the certificate again");
            }
            Ok(false) => report("SIGHUP: there are no tokens and no certificate to read again"),
            Err(error) => report_failure("kept the tokens and the certificate as they were", &error),
        }
        match self.quotas.reload(&self.tenants, self.has_kernels) {
            Ok(true) => report("read the quotas again"),
            Ok(false) => {}
            Err(error) => report_failure("kept the quotas as they were", &error),
        }
    }
}

fn report(message: &str) {
    notices::write(Level::Info, &format!("belljar: {message}"), message, &[]);
}

fn report_failure(message: &str, error: &CommandError) {
    let error = error.to_string();
    notices::write(Level::Error, &format!("belljar: {message}: {error}"), message, &[("error", &error)]);
}
