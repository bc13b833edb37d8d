//! Servers on the loopback interface of the host: HTTP, with TLS and without it, and a server that echoes bytes.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, Mutex};

use belljar_network::Resolver;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The secret that the host puts into requests.
pub(crate) const SECRET: &str = "the-value-of-the-secret";

/// The names of the servers' certificate.
const NAMES: [&str; 3] = ["pass.example", "rules.example", "secret.example"];

/// The servers that all tests share.
pub(crate) static SERVERS: LazyLock<Servers> = LazyLock::new(Servers::start);

/// Running servers.
pub(crate) struct Servers {
    /// The certificate authority of the servers, in PEM.
    pub(crate) authority: String,
    /// HTTP without TLS.
    pub(crate) http: u16,
    /// HTTP over TLS.
    pub(crate) tls: u16,
    /// HTTP over TLS with a certificate that is not trusted.
    pub(crate) untrusted: u16,
    /// Bytes that are sent back.
    pub(crate) echo: u16,
    /// The requests that arrived: heads and bodies.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    /// The ends of connections to the echo server.
    pub(crate) ended: Arc<Mutex<Vec<String>>>,
}

/// The names that were resolved.
pub(crate) static RESOLVED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A resolver for which every name is on the loopback interface.
pub(crate) struct LoopbackResolver;

impl Resolver for LoopbackResolver {
    fn resolve(&self, name: &str) -> std::io::Result<Vec<IpAddr>> {
        RESOLVED.lock().unwrap().push(name.to_owned());
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }
}

impl Servers {
    fn start() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "Authority of the tests");
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let der = params.self_signed(&key).unwrap().der().to_vec();
        let authority = pem::encode(&pem::Pem::new("CERTIFICATE", der));
        let issuer = Issuer::new(params, key);
        let trusted = config(&NAMES, Some(&issuer));
        let untrusted = config(&["rules.example"], None);
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let ended: Arc<Mutex<Vec<String>>> = Arc::default();
        let with_tls = |config: Arc<ServerConfig>| {
            let requests = requests.clone();
            serve(move |stream| {
                let connection = ServerConnection::new(config.clone()).unwrap();
                answer_requests(StreamOwned::new(connection, stream), &requests);
            })
        };
        let (tls, untrusted) = (with_tls(trusted), with_tls(untrusted));
        let of_http = requests.clone();
        let http = serve(move |stream| answer_requests(stream, &of_http));
        let of_echo = ended.clone();
        let echo = serve(move |mut stream| {
            let mut first = String::new();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                first.push_str(&String::from_utf8_lossy(&buffer[..length]));
                if stream.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            of_echo.lock().unwrap().push(first);
        });
        Self { authority, http, tls, untrusted, echo, requests, ended }
    }

    /// Returns the requests that contain a text.
    pub(crate) fn requests_with(&self, text: &str) -> Vec<String> {
        self.requests.lock().unwrap().iter().filter(|request| request.contains(text)).cloned().collect()
    }
}

/// Returns settings of TLS with a certificate of the issuer, or of itself.
fn config(names: &[&str], issuer: Option<&Issuer<'_, KeyPair>>) -> Arc<ServerConfig> {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.use_authority_key_identifier_extension = true;
    let certificate = match issuer {
        Some(issuer) => params.signed_by(&key, issuer),
        None => params.self_signed(&key),
    };
    let certificate: CertificateDer<'static> = certificate.unwrap().der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(config.unwrap())
}

/// Serves connections with `handle`, each on a thread of its own, and returns the port.
fn serve(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = handle.clone();
            std::thread::spawn(move || handle(stream));
        }
    });
    port
}

/// Answers requests with their own text until the client closes the connection. `/big/N` answers with N bytes.
fn answer_requests(stream: impl Read + Write, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let big = head.split(' ').nth(1).and_then(|path| path.strip_prefix("/big/")?.parse::<usize>().ok());
        let text = format!("{head}{}", String::from_utf8_lossy(&body));
        requests.lock().unwrap().push(text.clone());
        let answer = big.map_or(text.into_bytes(), |length| vec![b'x'; length]);
        let closes = lower.contains("connection: close");
        let connection = if closes { "close" } else { "keep-alive" };
        let stream = reader.get_mut();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n", answer.len());
        if stream.write_all(&[head.as_bytes(), &answer].concat()).and_then(|()| stream.flush()).is_err() || closes {
            return;
        }
    }
}
