//! Checks of token signatures with AWS-LC, which the dependency tree already contains for TLS. `jsonwebtoken` lets
//! its users choose the cryptography.

use aws_lc_rs::signature as lc;
use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtSigner, JwtVerifier};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};

static PROVIDER: CryptoProvider =
    CryptoProvider { signer_factory: no_signer, verifier_factory: verifier, jwk_utils: JwkUtils::new_unimplemented() };

/// Installs this module as `jsonwebtoken`'s provider of cryptography.
pub(super) fn install() {
    // Later calls fail because the provider is already installed.
    let _ = PROVIDER.install_default();
}

/// Returns an error: this server only verifies tokens.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let scheme = scheme(*algorithm).ok_or(ErrorKind::InvalidAlgorithm)?;
    Ok(Box::new(Check { algorithm: *algorithm, scheme, key: key.clone() }))
}

#[derive(Clone, Copy)]
enum Scheme {
    Rsa(&'static lc::RsaParameters),
    Other(&'static dyn lc::VerificationAlgorithm),
}

fn scheme(algorithm: Algorithm) -> Option<Scheme> {
    Some(match algorithm {
        Algorithm::RS256 => Scheme::Rsa(&lc::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Scheme::Rsa(&lc::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Scheme::Rsa(&lc::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Scheme::Rsa(&lc::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Scheme::Rsa(&lc::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Scheme::Rsa(&lc::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Scheme::Other(&lc::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Scheme::Other(&lc::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Scheme::Other(&lc::ED25519),
        _ => return None,
    })
}

/// A verifier for one algorithm and one key.
struct Check {
    algorithm: Algorithm,
    scheme: Scheme,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], given: &Vec<u8>) -> Result<(), signature::Error> {
        let checked = match (self.scheme, self.key.kind()) {
            (Scheme::Rsa(parameters), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                lc::RsaPublicKeyComponents { n, e }.verify(parameters, message, given)
            }
            (Scheme::Other(algorithm), DecodingKeyKind::SecretOrDer(point)) => {
                lc::UnparsedPublicKey::new(algorithm, point).verify(message, given)
            }
            _ => return Err(signature::Error::new()),
        };
        checked.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
