//! The code of the tests: it uses connections as the sandbox does.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use belljar_core::ConnectionRecord;
use belljar_network::{
    Connection, Connections, Network, NetworkLimits, NetworkObserver, NetworkOptions, Policy, Resolver, Secrets,
};
use serde_json::{Value, json};

use crate::server::authority_pem;

/// The time after which a test fails.
const TEST_TIME: Duration = Duration::from_secs(120);

/// An observer that stores records.
#[derive(Default)]
pub(crate) struct Records {
    records: Mutex<Vec<ConnectionRecord>>,
    changed: Condvar,
}

impl NetworkObserver for Records {
    fn on_connection(&self, record: &ConnectionRecord) {
        self.records.lock().unwrap().push(record.clone());
        self.changed.notify_all();
    }
}

impl Records {
    /// Waits for a number of records.
    pub(crate) fn wait(&self, count: usize) -> Vec<ConnectionRecord> {
        let records = self.records.lock().unwrap();
        let (records, _) =
            self.changed.wait_timeout_while(records, TEST_TIME, |records| records.len() < count).unwrap();
        assert!(records.len() >= count, "{records:?}");
        records.clone()
    }
}

/// Options of the network of a test.
#[derive(Default)]
pub(crate) struct Setup {
    policy: Policy,
    secrets: Secrets,
    limits: NetworkLimits,
    resolver: Option<Arc<dyn Resolver>>,
    narrowed: Option<Policy>,
    /// The authorities that the host trusts. That of the tests, if `None`.
    authority: Option<String>,
}

/// The network of a test.
pub(crate) struct World {
    pub(crate) network: Arc<Network>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) records: Arc<Records>,
}

impl Setup {
    pub(crate) fn new(policy: &str) -> Self {
        Self { policy: Policy::from_toml(policy).unwrap(), ..Self::default() }
    }

    pub(crate) fn secret(mut self, name: &str, host: &str, value: &str) -> Self {
        self.secrets.add(name, &[host], value.to_owned()).unwrap();
        self
    }

    pub(crate) fn limits(mut self, limits: NetworkLimits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn resolver(mut self, resolver: impl Resolver + 'static) -> Self {
        self.resolver = Some(Arc::new(resolver));
        self
    }

    pub(crate) fn narrowed(mut self, policy: &str) -> Self {
        self.narrowed = Some(Policy::from_toml(policy).unwrap());
        self
    }

    /// Replaces the authority of the tests.
    #[allow(dead_code, reason = "the benchmark uses it")]
    pub(crate) fn authority(mut self, pem: &str) -> Self {
        self.authority = Some(pem.to_owned());
        self
    }

    pub(crate) fn build(self) -> World {
        let options = NetworkOptions {
            policy: self.policy,
            secrets: self.secrets,
            extra_ca: Some(self.authority.unwrap_or_else(authority_pem).into_bytes()),
            limits: self.limits,
            resolver: self.resolver,
        };
        let network = Network::new(options).unwrap();
        let records = Arc::new(Records::default());
        let connections = network.connections(self.narrowed, Arc::clone(&records) as Arc<dyn NetworkObserver>);
        World { network, connections, records }
    }
}

/// Returns the network for one server on loopback that has the name `a.test`.
pub(crate) fn world(port: u16) -> World {
    Setup::new(&policy(port)).build()
}

/// Returns a policy that allows `a.test` on a port, and gives it the address 127.0.0.1.
pub(crate) fn policy(port: u16) -> String {
    format!("allow = ['a.test:{port}']\nresolve = {{ 'a.test' = '127.0.0.1' }}")
}

impl World {
    /// Connects to a name and waits until the connection is established.
    pub(crate) fn connect(&self, name: &str, port: u16) -> Client {
        let client = self.begin(name, port);
        client.wait_connected().unwrap();
        client
    }

    /// Begins a connection to a name.
    pub(crate) fn begin(&self, name: &str, port: u16) -> Client {
        let address = self.connections.resolve(name).unwrap()[0];
        Client::new(self.connections.connect(SocketAddr::new(address, port)).unwrap(), self)
    }

    /// Connects to an address.
    pub(crate) fn connect_address(&self, address: &str, port: u16) -> Client {
        let address: IpAddr = address.parse().unwrap();
        let client = Client::new(self.connections.connect(SocketAddr::new(address, port)).unwrap(), self);
        client.wait_connected().unwrap();
        client
    }

    /// Connects to a name with TLS.
    pub(crate) fn connect_tls(&self, name: &str, port: u16) -> Client {
        let client = self.connect(name, port);
        let answer = client.start_tls(&verified(name));
        assert_eq!(answer["error"], Value::Null);
        client
    }

    /// Returns the placeholder of a secret.
    pub(crate) fn placeholder(&self, name: &str) -> String {
        self.network.secrets().environment().find(|(known, _)| *known == name).unwrap().1.to_owned()
    }
}

/// Returns the request for TLS of Python's default context.
pub(crate) fn verified(name: &str) -> Value {
    json!({ "server_hostname": name, "alpn": ["http/1.1"], "verify": true, "check_hostname": true, "ca": null, "minimum": "TLSv1.2" })
}

/// A connection with methods that block.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    token: [u8; 16],
    changed: Arc<(Mutex<u64>, Condvar)>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    fn new(connection: Connection, world: &World) -> Self {
        let changed: Arc<(Mutex<u64>, Condvar)> = Arc::default();
        let notified = Arc::clone(&changed);
        connection.on_change(Arc::new(move || {
            *notified.0.lock().unwrap() += 1;
            notified.1.notify_all();
        }));
        Self { connection, token: world.connections.tls_token(), changed }
    }

    /// Repeats an operation until it does not block.
    fn block<T>(&self, mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let start = Instant::now();
        loop {
            let seen = *self.changed.0.lock().unwrap();
            match operation() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
            let count = self.changed.0.lock().unwrap();
            let rest = TEST_TIME.saturating_sub(start.elapsed());
            let (_count, waited) = self.changed.1.wait_timeout_while(count, rest, |count| *count == seen).unwrap();
            assert!(!waited.timed_out(), "the connection did not become ready");
        }
    }

    pub(crate) fn wait_connected(&self) -> io::Result<()> {
        self.block(|| match self.connection.take_error() {
            Some(error) => Err(error),
            None if self.connection.is_connected() => Ok(()),
            None => Err(io::ErrorKind::WouldBlock.into()),
        })
    }

    pub(crate) fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = self.block(|| self.connection.write(data))?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Writes, and ignores that the connection may have ended.
    pub(crate) fn send(&self, text: &str) {
        let _written = self.write_all(text.as_bytes());
    }

    pub(crate) fn read_some(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        let read = self.block(|| self.connection.read(&mut buffer, false))?;
        buffer.truncate(read);
        Ok(buffer)
    }

    pub(crate) fn read_exact(&self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let more = self.read_some(length - bytes.len())?;
            if more.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes.extend(more);
        }
        Ok(bytes)
    }

    pub(crate) fn read_to_end(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let more = self.read_some(65536)?;
            if more.is_empty() {
                return Ok(bytes);
            }
            bytes.extend(more);
        }
    }

    /// Returns everything that arrives, up to the end or an error.
    pub(crate) fn read_rest(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Ok(more) = self.read_some(65536) {
            if more.is_empty() {
                break;
            }
            bytes.extend(more);
        }
        bytes
    }

    /// Asks for TLS and returns the answer.
    pub(crate) fn start_tls(&self, request: &Value) -> Value {
        let text = request.to_string();
        let message = [&self.token, &u32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
        self.write_all(&message).unwrap();
        self.tls_answer()
    }

    pub(crate) fn tls_answer(&self) -> Value {
        let length = u32::from_be_bytes(self.read_exact(4).unwrap().try_into().unwrap());
        serde_json::from_slice(&self.read_exact(length as usize).unwrap()).unwrap()
    }

    /// Sends a request and reads its response.
    pub(crate) fn request(&self, text: &str) -> Response {
        self.write_all(text.as_bytes()).unwrap();
        self.response().unwrap()
    }

    /// Sends `GET` for `a.test` with more headers.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Response {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"))
    }

    /// Reads a response with its body.
    pub(crate) fn response(&self) -> io::Result<Response> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(self.read_exact(1)?);
        }
        let head = String::from_utf8(head).unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let body = if status < 200 || status == 204 || status == 304 {
            Vec::new()
        } else if lower.contains("transfer-encoding: chunked") {
            self.chunks()?
        } else if let Some(length) = length {
            self.read_exact(length.parse().unwrap())?
        } else {
            self.read_to_end()?
        };
        Ok(Response { status, head, body })
    }

    fn chunks(&self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16).unwrap();
            if size == 0 {
                while !self.line()?.is_empty() {}
                return Ok(body);
            }
            body.extend(self.read_exact(size)?);
            assert_eq!(self.line()?, "");
        }
    }

    fn line(&self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.read_exact(1)?);
        }
        Ok(String::from_utf8(line).unwrap().trim_end().to_owned())
    }
}
