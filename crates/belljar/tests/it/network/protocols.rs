//! Sockets, TLS and HTTP as programs use them without a library.

use super::cases::check;

#[test]
fn sockets_are_those_of_python() {
    check("sockets.py");
}

#[test]
fn tls_has_the_errors_of_python() {
    check("tls.py");
}

#[test]
fn http_carries_large_and_refuses_invalid_messages() {
    check("http.py");
}
