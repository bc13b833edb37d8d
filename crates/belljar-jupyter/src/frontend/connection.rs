//! The connection file: where a kernel listens, and the key that messages are signed with.

use std::io::Read;
use std::path::{Path, PathBuf};

use jupyter_protocol::connection_info::{ConnectionInfo, Transport};

use super::FrontendError;

/// Longest file that is read, in bytes.
const MAX_FILE: u64 = 64 << 10;
/// The one way of signing that there is.
const SCHEME: &str = "hmac-sha256";

/// Where a kernel listens.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The transport, addresses and all.
    info: ConnectionInfo,
    /// What messages are signed with; empty is not at all.
    pub(crate) key: Vec<u8>,
}

impl Connection {
    /// Reads a connection file, as Jupyter writes one for each kernel.
    ///
    /// # Errors
    /// When it cannot be read, or asks for what there is not.
    pub fn read(path: &Path) -> Result<Self, FrontendError> {
        let wrong = |reason: String| FrontendError::Connection { path: path.into(), reason };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        file.take(MAX_FILE).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let info: ConnectionInfo = serde_json::from_str(text)
            .map_err(|error| format!("it is none as Jupyter's frontends write them: {error}"))?;
        if !info.key.is_empty() && info.signature_scheme != SCHEME {
            return Err(format!("it asks for signatures of {}; there is only {SCHEME}", info.signature_scheme));
        }
        if info.ip.is_empty() || info.ip == "*" {
            return Err("its `ip` names no address to listen on".into());
        }
        Ok(Self { key: info.key.clone().into_bytes(), info })
    }

    pub(crate) fn shell_url(&self) -> String {
        self.info.shell_url()
    }

    pub(crate) fn control_url(&self) -> String {
        self.info.control_url()
    }

    pub(crate) fn stdin_url(&self) -> String {
        self.info.stdin_url()
    }

    pub(crate) fn iopub_url(&self) -> String {
        self.info.iopub_url()
    }

    pub(crate) fn heartbeat_url(&self) -> String {
        self.info.hb_url()
    }

    /// The files of the sockets, when they are Unix ones.
    pub(crate) fn socket_paths(&self) -> Vec<PathBuf> {
        if self.info.transport != Transport::IPC {
            return Vec::new();
        }
        let info = &self.info;
        let ports = [info.shell_port, info.iopub_port, info.stdin_port, info.control_port, info.hb_port];
        ports.iter().map(|port| PathBuf::from(format!("{}-{port}", info.ip))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut serde_json::Value)) -> String {
        let mut file = serde_json::json!({
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5, "ip": "127.0.0.1",
            "key": "k", "transport": "tcp", "signature_scheme": "hmac-sha256", "kernel_name": "belljar",
        });
        change(&mut file);
        file.to_string()
    }

    #[test]
    fn addresses_are_those_of_the_transport() {
        let tcp = Connection::parse(&file(|_| {})).unwrap();
        assert_eq!((tcp.shell_url().as_str(), tcp.socket_paths().len()), ("tcp://127.0.0.1:1", 0));
        let ipc = Connection::parse(&file(|file| {
            file["transport"] = "ipc".into();
            file["ip"] = "/run/kernel-ipc".into();
        }))
        .unwrap();
        assert_eq!(ipc.heartbeat_url(), "ipc:///run/kernel-ipc-5");
        assert_eq!(ipc.socket_paths()[1], Path::new("/run/kernel-ipc-2"));
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let scheme = Connection::parse(&file(|file| file["signature_scheme"] = "hmac-md5".into()));
        assert!(scheme.unwrap_err().contains("hmac-md5"));
        assert!(Connection::parse(&file(|file| file["ip"] = "*".into())).is_err());
        assert!(Connection::parse("{}").is_err());
        assert!(Connection::read(Path::new("/nowhere.json")).unwrap_err().to_string().contains("/nowhere.json"));
    }
}
