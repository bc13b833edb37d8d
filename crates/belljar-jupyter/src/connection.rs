//! The connection file: the addresses that a kernel listens on, and the key that signs messages.

use std::io::Read;
use std::path::{Path, PathBuf};

use jupyter_protocol::connection_info::{ConnectionInfo, Transport};

use crate::KernelServerError;

/// The largest size of a connection file, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The only signature scheme that Jupyter defines.
const SIGNATURE_SCHEME: &str = "hmac-sha256";

/// The reason why a connection file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFileError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// The file does not have the fields of a connection file.
    #[error("invalid content: {0}")]
    Parse(#[from] serde_json::Error),
    /// The signature scheme is not supported.
    #[error("unsupported signature scheme {0}: only {SIGNATURE_SCHEME} is supported")]
    SignatureScheme(String),
    /// The field `ip` does not name an address.
    #[error("unsupported `ip` {0:?}: an address is required")]
    Ip(String),
}

/// The addresses and the key of a kernel.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The content of the connection file.
    info: ConnectionInfo,
    /// The key that signs messages. If it is empty, messages are not signed.
    pub(crate) key: Vec<u8>,
}

impl Connection {
    /// Reads a connection file, as Jupyter writes one for each kernel.
    ///
    /// # Errors
    /// Returns [`KernelServerError::ConnectionFile`] if the file cannot be read or is not supported.
    pub fn read(path: &Path) -> Result<Self, KernelServerError> {
        let error = |source| KernelServerError::ConnectionFile { path: path.into(), source };
        let mut text = String::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
        read.map_err(|source| error(source.into()))?;
        Self::parse(&text).map_err(error)
    }

    fn parse(text: &str) -> Result<Self, ConnectionFileError> {
        let info: ConnectionInfo = serde_json::from_str(text)?;
        if !info.key.is_empty() && info.signature_scheme != SIGNATURE_SCHEME {
            return Err(ConnectionFileError::SignatureScheme(info.signature_scheme));
        }
        if info.ip.is_empty() || info.ip == "*" {
            return Err(ConnectionFileError::Ip(info.ip));
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

    /// Returns the files of the sockets, if they are Unix sockets.
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
    fn addresses_depend_on_the_transport() {
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
    fn unsupported_connection_file_is_refused() {
        let scheme = Connection::parse(&file(|file| file["signature_scheme"] = "hmac-md5".into()));
        assert!(matches!(scheme, Err(ConnectionFileError::SignatureScheme(scheme)) if scheme == "hmac-md5"));
        let ip = Connection::parse(&file(|file| file["ip"] = "*".into()));
        assert!(matches!(ip, Err(ConnectionFileError::Ip(_))));
        assert!(matches!(Connection::parse("{}"), Err(ConnectionFileError::Parse(_))));
        assert!(Connection::read(Path::new("/nowhere.json")).unwrap_err().to_string().contains("/nowhere.json"));
    }
}
