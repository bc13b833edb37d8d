//! A relay between a replica and a service, which can be closed: connections stay open then, and nothing passes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval at which a closed gate looks whether it is open again.
const INTERVAL: Duration = Duration::from_millis(50);

/// A relay to one address.
pub(super) struct Gate {
    pub(super) port: u16,
    is_open: Arc<AtomicBool>,
}

impl Gate {
    pub(super) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_open = Arc::new(AtomicBool::new(true));
        let gate = is_open.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to, gate) = (from.try_clone().unwrap(), to.try_clone().unwrap(), gate.clone());
                    from.set_nodelay(true).unwrap();
                    std::thread::spawn(move || relay(from, to, &gate));
                }
            }
        });
        Self { port, is_open }
    }

    pub(super) fn open(&self, is_open: bool) {
        self.is_open.store(is_open, Ordering::Relaxed);
    }
}

fn relay(mut from: TcpStream, mut to: TcpStream, is_open: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        while !is_open.load(Ordering::Relaxed) {
            std::thread::sleep(INTERVAL);
        }
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            // Fails if the other direction has ended first.
            let _ = to.shutdown(std::net::Shutdown::Write);
            return;
        }
    }
}
