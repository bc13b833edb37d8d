//! Servers on loopback, with certificates of an authority of the tests.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A stream to a client.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// A server that runs until the test ends.
pub(crate) struct Server {
    pub(crate) port: u16,
    /// Everything that clients sent, if the handler stores it.
    pub(crate) seen: Arc<Mutex<Vec<u8>>>,
    /// The number of connections that were accepted.
    pub(crate) accepted: Arc<Mutex<usize>>,
}

/// A handler of connections: the stream, and the place for what clients sent.
pub(crate) type Handler = dyn Fn(&mut dyn Stream, &Mutex<Vec<u8>>) + Send + Sync;

impl Server {
    /// Starts a server on 127.0.0.1.
    pub(crate) fn start(handler: impl Fn(&mut dyn Stream, &Mutex<Vec<u8>>) + Send + Sync + 'static) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), None, Arc::new(handler))
    }

    /// Starts a server with TLS on 127.0.0.1.
    pub(crate) fn start_tls(
        config: Arc<ServerConfig>,
        handler: impl Fn(&mut dyn Stream, &Mutex<Vec<u8>>) + Send + Sync + 'static,
    ) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), Some(config), Arc::new(handler))
    }

    pub(crate) fn start_on(address: IpAddr, config: Option<Arc<ServerConfig>>, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let accepted: Arc<Mutex<usize>> = Arc::default();
        let (server_seen, server_accepted) = (Arc::clone(&seen), Arc::clone(&accepted));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                *server_accepted.lock().unwrap() += 1;
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
                let (config, handler, seen) = (config.clone(), Arc::clone(&handler), Arc::clone(&server_seen));
                thread::spawn(move || serve(stream, config, handler.as_ref(), &seen));
            }
        });
        Self { port, seen, accepted }
    }

    pub(crate) fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(crate) fn accepted(&self) -> usize {
        *self.accepted.lock().unwrap()
    }
}

fn serve(stream: TcpStream, config: Option<Arc<ServerConfig>>, handler: &Handler, seen: &Mutex<Vec<u8>>) {
    match config {
        None => handler(&mut { stream }, seen),
        Some(config) => {
            let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                return;
            }
            handler(&mut stream, seen);
            stream.conn.send_close_notify();
            let _flushed = stream.flush();
        }
    }
}

/// A request that a server received.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Reads a request with its body, as servers do.
pub(crate) fn read_request(stream: &mut dyn Stream, seen: &Mutex<Vec<u8>>) -> Option<Request> {
    let byte = |stream: &mut dyn Stream| {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => {
                seen.lock().unwrap().push(byte[0]);
                Some(byte[0])
            }
            _ => None,
        }
    };
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(byte(stream)?);
    }
    let mut request = Request { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    if let Some(length) = request.header("content-length") {
        for _ in 0..length.parse::<usize>().unwrap() {
            request.body.push(byte(stream)?);
        }
    } else if request.header("transfer-encoding").is_some() {
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.push(byte(stream)?);
            }
            let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            for _ in 0..size {
                request.body.push(byte(stream)?);
            }
            byte(stream)?;
            byte(stream)?;
            if size == 0 {
                break;
            }
        }
    }
    Some(request)
}

/// Returns a handler that answers each request of a connection.
pub(crate) fn http(
    answer: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static,
) -> impl Fn(&mut dyn Stream, &Mutex<Vec<u8>>) + Send + Sync {
    move |stream, seen| {
        while let Some(request) = read_request(stream, seen) {
            let answer = answer(&request);
            if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() || closes(&answer) {
                return;
            }
        }
    }
}

fn closes(answer: &[u8]) -> bool {
    answer.windows(17).any(|window| window == b"Connection: close")
}

/// Returns a response with a length.
pub(crate) fn response(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

/// The authority of the tests.
struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(|| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Authority { certificate, issuer: Issuer::new(params, key) }
    })
}

/// Returns the certificate of the authority of the tests in PEM.
pub(crate) fn authority_pem() -> String {
    pem(&authority().certificate)
}

/// Returns a certificate in PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

/// The kinds of certificates of servers.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Certificate {
    Valid,
    Expired,
    NotYetValid,
    SelfSigned,
    /// Its own authority.
    SelfSignedAuthority,
    /// Signed by an authority that is not trusted and is sent along.
    UnknownAuthority,
    /// Signed by an authority that is not sent along.
    MissingAuthority,
}

/// Returns the settings of a server with a certificate, and the certificate.
pub(crate) fn tls_with(kind: Certificate, names: &[&str], alpn: &[&str]) -> (Arc<ServerConfig>, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, "server of the tests");
    match kind {
        Certificate::Expired => {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        Certificate::NotYetValid => {
            params.not_before = date_time_ymd(3000, 1, 1);
            params.not_after = date_time_ymd(3001, 1, 1);
        }
        Certificate::SelfSignedAuthority => params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
        _ => {}
    }
    let chain = match kind {
        Certificate::SelfSigned | Certificate::SelfSignedAuthority => {
            vec![params.self_signed(&key).unwrap().der().clone()]
        }
        Certificate::UnknownAuthority | Certificate::MissingAuthority => {
            let other_key = KeyPair::generate().unwrap();
            let mut other = CertificateParams::new(Vec::new()).unwrap();
            other.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            other.distinguished_name.push(DnType::CommonName, "another authority");
            let root = other.self_signed(&other_key).unwrap().der().clone();
            let leaf = params.signed_by(&key, &Issuer::new(other, other_key)).unwrap().der().clone();
            if kind == Certificate::UnknownAuthority { vec![leaf, root] } else { vec![leaf] }
        }
        _ => vec![params.signed_by(&key, &authority().issuer).unwrap().der().clone()],
    };
    let leaf = chain[0].to_vec();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    (Arc::new(config), leaf)
}

/// Returns the settings of a server with a valid certificate.
pub(crate) fn tls(names: &[&str]) -> Arc<ServerConfig> {
    tls_with(Certificate::Valid, names, &[]).0
}
