//! Certificates of the servers of network tests: good ones, and ones that clients refuse.

use std::error::Error;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// Writes the certificate authority `ca.crt`, and for each kind of server a file with its key and certificate.
///
/// # Errors
/// Returns the error of a key or of a file.
pub(crate) fn write(folder: &Path) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (ca, trusted) = authority("Certificate authority of the tests")?;
    let (_, unknown) = authority("An unknown certificate authority")?;
    std::fs::write(folder.join("ca.crt"), ca)?;
    let good = ["*.example.com", "*.wild.example.com", "localhost", "127.0.0.1", "::1"];
    for (name, names, years, issuer) in [
        ("good", good.as_slice(), (2020, 2100), Some(&trusted)),
        ("expired", &["api.example.com"], (2000, 2010), Some(&trusted)),
        ("future", &["api.example.com"], (2090, 2100), Some(&trusted)),
        ("wrong_name", &["other.example.org"], (2020, 2100), Some(&trusted)),
        ("unknown", &["api.example.com"], (2020, 2100), Some(&unknown)),
        ("self_signed", &["api.example.com"], (2020, 2100), None),
    ] {
        let mut params = CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.not_before = date_time_ymd(years.0, 1, 1);
        params.not_after = date_time_ymd(years.1, 1, 1);
        let key = KeyPair::generate()?;
        let certificate = match issuer {
            Some(issuer) => params.signed_by(&key, issuer)?,
            None => params.self_signed(&key)?,
        };
        std::fs::write(folder.join(format!("{name}.pem")), key.serialize_pem() + &certificate.pem())?;
    }
    Ok(())
}

/// Creates an authority. Returns its certificate and what it signs with.
fn authority(name: &str) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), Issuer::new(params, key)))
}
