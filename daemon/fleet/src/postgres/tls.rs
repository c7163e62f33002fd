//! Encrypted connections, as `sslmode` asks for.

use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};

use super::address::{Address, TlsMode};
use super::error::PgError;

/// An encrypted connection.
pub(super) type TlsStream = Box<StreamOwned<ClientConnection, TcpStream>>;

/// How much of a certificate is looked at.
#[derive(Debug)]
enum Check {
    /// Nothing: the connection is encrypted, and any server is taken.
    Nothing,
    /// That a trusted authority has signed it.
    Authority(RootCertStore),
}

/// Less than everything of a certificate is looked at, as libpq does for these modes.
#[derive(Debug)]
struct Lenient {
    check: Check,
    provider: Arc<CryptoProvider>,
}

/// Begins an encrypted connection; the handshake takes place with the first bytes.
pub(super) fn encrypt(
    address: &Address,
    name: &str,
    stream: TcpStream,
) -> Result<TlsStream, PgError> {
    let failed = |why: &dyn std::fmt::Display| {
        PgError::Tls(format!("no encrypted connection to the database: {why}"))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| failed(&why))?;
    let lenient = |check| Arc::new(Lenient { check, provider: Arc::clone(&provider) });
    let config = match address.tls {
        TlsMode::VerifyFull => {
            let roots = Arc::new(roots(address)?);
            let verifier =
                WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            builder.with_webpki_verifier(verifier.map_err(|why| failed(&why))?)
        }
        TlsMode::VerifyCa => {
            let check = Check::Authority(roots(address)?);
            builder.dangerous().with_custom_certificate_verifier(lenient(check))
        }
        // As in libpq, authorities that are named are asked.
        TlsMode::Require if address.ca_file.is_some() => {
            let check = Check::Authority(roots(address)?);
            builder.dangerous().with_custom_certificate_verifier(lenient(check))
        }
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => {
            builder.dangerous().with_custom_certificate_verifier(lenient(Check::Nothing))
        }
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|why| failed(&why))?;
    let config = Arc::new(config.with_no_client_auth());
    let connection = ClientConnection::new(config, name).map_err(|why| failed(&why))?;
    Ok(Box::new(StreamOwned::new(connection, stream)))
}

/// The authorities of `sslrootcert`, or those of the system.
fn roots(address: &Address) -> Result<RootCertStore, PgError> {
    let mut roots = RootCertStore::empty();
    match &address.ca_file {
        Some(path) => {
            let failed = |why: &dyn std::fmt::Display| {
                PgError::Tls(format!(
                    "cannot read certificates of authorities from {}: {why}",
                    path.display()
                ))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|why| failed(&why))? {
                let certificate = certificate.map_err(|why| failed(&why))?;
                roots.add(certificate).map_err(|why| failed(&why))?;
            }
        }
        // Systems have certificates that no verifier takes; the others count.
        None => {
            let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match roots.is_empty() {
        true => Err(PgError::Tls(
            "there is no certificate of an authority; name a file of them by sslrootcert"
                .to_owned(),
        )),
        false => Ok(roots),
    }
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Check::Authority(roots) = &self.check {
            let algorithms = self.provider.signature_verification_algorithms.all;
            let certificate = ParsedCertificate::try_from(certificate)?;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
