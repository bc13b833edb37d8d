//! The options for fair shares between the owners of calls and sessions.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_server::Tokens;
use belljar_sessions::{LoadThresholds, MAX_QUOTA_FILE, QuotaKind, QuotaSettings, QuotaTable, Tenants, watch_memory};
use clap::Args;

use crate::command_error::CommandError;
use crate::value_parsers::seconds;

/// The options for fair shares.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Quotas")]
pub(crate) struct QuotaOptions {
    /// Quota of each owner, such as `runs=4` or `memory=2GB`. May be repeated.
    ///
    /// An owner is the client with a token, or a connection without authentication.
    #[arg(long, value_name = "KEY=VALUE", value_parser = QuotaSettings::parse_option, hide_short_help = true)]
    quota: Vec<QuotaSettings>,
    /// TOML file of quotas: `[default]`, and `[owner."NAME"]` for owners with other ones. It is read again on SIGHUP.
    #[arg(long, value_name = "FILE", env = "BELLJAR_QUOTAS", hide_env_values = true, hide_short_help = true)]
    quotas: Option<PathBuf>,
    /// Time for which a call may wait until its code begins; 0 is no limit.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300", hide_short_help = true)]
    queue_timeout: Duration,
    /// Refuse new code while this percentage of the server's memory is in use: that of its control groups with a limit,
    /// or of the machine. 0 never refuses.
    #[arg(long, value_name = "PERCENT", default_value_t = 95, value_parser = clap::value_parser!(u8).range(..=100), hide_short_help = true)]
    shed_memory: u8,
    /// Refuse new code while all tasks waited for memory in this percentage of the last ten seconds, where the kernel
    /// has pressure stall information. 0 never refuses.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u8).range(..=100), hide_short_help = true)]
    shed_pressure: u8,
    /// Read memory.pressure, memory.current, memory.max and memory.stat in this directory: that of another control
    /// group [default: the control groups of the server, and the machine].
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    shed_group: Option<PathBuf>,
}

impl QuotaOptions {
    /// Creates the owners of a server. `has_kernels` is set if code runs in native kernels.
    pub(crate) fn tenants(&self, has_kernels: bool) -> Result<Tenants, CommandError> {
        let table = self.table(has_kernels)?;
        let timeout = Some(self.queue_timeout).filter(|timeout| !timeout.is_zero());
        let tenants = Tenants::new(table, timeout);
        let thresholds = LoadThresholds { stall: self.shed_pressure.into(), used: self.shed_memory.into() };
        watch_memory(&tenants, thresholds, self.shed_group.clone())
            .map_err(|error| format!("failed to start a thread: {error}"))?;
        Ok(tenants)
    }

    /// Reads the quotas again. Returns whether there is a file of them.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is not valid, or has quotas that do not apply to the server's code
    /// (`has_kernels`, as for [`Self::tenants`]). The server then keeps the quotas that it has.
    pub(crate) fn reload(&self, tenants: &Tenants, has_kernels: bool) -> Result<bool, CommandError> {
        if self.quotas.is_some() {
            tenants.replace_quotas(self.table(has_kernels)?);
        }
        Ok(self.quotas.is_some())
    }

    /// Returns the quotas of the options and the file.
    fn table(&self, has_kernels: bool) -> Result<QuotaTable, CommandError> {
        let mut defaults = QuotaSettings::default();
        for quota in &self.quota {
            defaults.extend(quota);
        }
        let table = self.quotas.as_deref().map(read).transpose()?.unwrap_or_default();
        let table = table.with_defaults(&defaults);
        if has_kernels {
            check_kernels(&table)?;
        }
        Ok(table)
    }
}

/// Checks that no quota is set that does not apply to code in native kernels.
fn check_kernels(table: &QuotaTable) -> Result<(), CommandError> {
    let unsupported = [QuotaKind::Memory, QuotaKind::Processor, QuotaKind::Network];
    match unsupported.into_iter().find(|kind| table.limits(*kind)) {
        Some(kind) => Err(CommandError::new(format!("--quotas: the quota `{kind}` does not apply to native kernels"))
            .with_hint("leave it out, or use --sandbox wasm; --session-memory limits each native kernel")),
        None => Ok(()),
    }
}

/// Gives the owners of tokens the names in the file of tokens.
pub(crate) fn name_tokens(tenants: &Tenants, tokens: &Tokens) {
    tenants.replace_names(tokens.names());
}

fn read(file: &Path) -> Result<QuotaTable, CommandError> {
    let failed = |error: &dyn std::fmt::Display| format!("--quotas: failed to read {}: {error}", file.display());
    let size = std::fs::metadata(file).map_err(|error| failed(&error))?.len();
    if size > MAX_QUOTA_FILE {
        return Err(failed(&format!("it is longer than {MAX_QUOTA_FILE} bytes")).into());
    }
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let parsed = QuotaTable::parse(&text);
    Ok(parsed.map_err(|error| format!("--quotas: {}: {error}", file.display()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_that_do_not_apply_to_native_kernels_are_refused() {
        for (text, is_refused) in [("memory = 1000", true), ("processor = 3", true), ("runs = 2", false)] {
            let table = QuotaTable::parse(&format!("[owner.alice]\n{text}\n")).unwrap();
            assert_eq!(check_kernels(&table).is_err(), is_refused, "{text}");
        }
    }
}
