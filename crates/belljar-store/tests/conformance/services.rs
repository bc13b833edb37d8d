//! Servers with the interfaces of cloud stores, in processes of their own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use belljar_testing::{free_port, install, node};

/// The account of Azurite and its key, which are the same in all installations.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// The time for the start of a server, which on a busy machine takes most of a minute.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// A signature with that key, which allows the creation of containers until the year 2100. Stores do not create them.
const CREATION: &str = "sv=2021-08-06&ss=b&srt=c&sp=c&se=2100-01-01T00%3A00%3A00Z\
                        &sig=4XJAw1vleS2UuJ%2FLMx8V7cw%2BIg1uvsXSA%2B7A7iGe2zI%3D";

/// The server of a store. Dropping it ends the process.
pub(crate) struct Service {
    process: Child,
    pub(crate) port: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    /// Starts the S3 server of moto, with the bucket `bucket`. It handles one request at a time.
    pub(crate) async fn moto() -> Self {
        let programs = install::pip(root(), "moto", &["moto[server]==5.2.5"]);
        let port = free_port();
        let mut command = Command::new(programs.join("python"));
        // Tests run in the directory of their package.
        command.arg("tests/conformance/moto_server.py").arg(port.to_string());
        Self::start(command, port, "bucket").await
    }

    /// Starts Azurite, the server of the Azure Blob API that Microsoft develops, with the container `container`.
    pub(crate) async fn azurite() -> Self {
        let modules = install::npm(root(), "azurite", &["azurite@3.37.0"]);
        let port = free_port();
        let mut command = Command::new(node());
        command.arg(modules.join("azurite/dist/src/blob/main.js"));
        // Its releases accept the versions of the API that they know, and clients may be newer.
        command.args(["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        Self::start(command, port, &format!("{ACCOUNT}/container?restype=container&{CREATION}")).await
    }

    /// Starts a server, and waits until it has created a bucket.
    async fn start(mut command: Command, port: u16, bucket: &str) -> Self {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut service = Self { process, port };
        let (client, begin) = (reqwest::Client::new(), Instant::now());
        loop {
            let created = client.put(format!("http://127.0.0.1:{port}/{bucket}")).send().await;
            // Otherwise the answer could be that of another server at this port.
            assert_eq!(service.process.try_wait().unwrap(), None, "{command:?} has ended: {created:?}");
            if created.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                return service;
            }
            assert!(begin.elapsed() < START_TIMEOUT, "{command:?} has not started: {created:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Returns the variables with which a container of Azurite is used.
pub(crate) fn azurite_variables(port: u16) -> Vec<(String, String)> {
    let endpoint = format!("http://127.0.0.1:{port}/{ACCOUNT}");
    let pairs = [
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
        ("AZURE_ALLOW_HTTP", "true"),
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}
