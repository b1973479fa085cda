//! The TLS settings of connections to a server, as its URL requests them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::words::error::StoreError;

/// The degree to which the server's certificate is checked. The words are those of libpq's
/// `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// `prefer` and `require`: encrypted, with any server.
    AnyServer,
    /// `verify-ca`: a server with a certificate of a known authority.
    Authority,
    /// `verify-full`: the host in the URL.
    Host,
}

/// A client that checks this much, against the authorities in a file or, without one, those of the
/// system.
pub(crate) fn config(trust: Trust, roots: Option<&Path>) -> Result<ClientConfig, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| StoreError::refused("TLS could not be set up").with_source(e))?;
    let config = match trust {
        Trust::Host => builder.with_root_certificates(authorities(roots)?),
        Trust::Authority => {
            let verifier = WebPkiServerVerifier::builder_with_provider(
                Arc::new(authorities(roots)?),
                Arc::clone(&provider),
            )
            .build()
            .map_err(|e| {
                StoreError::refused("there are no certificate authorities to trust").with_source(e)
            })?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Lenient { provider, chain: Some(verifier) }))
        }
        Trust::AnyServer => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Lenient { provider, chain: None }))
        }
    };
    Ok(config.with_no_client_auth())
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let unreadable = || format!("could not read the certificates in {}", file.display());
    let pem = fs::read(file).map_err(|e| StoreError::refused(unreadable()).with_source(e))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|e| StoreError::refused(unreadable()).with_source(e))?;
        roots.add(certificate).map_err(|e| StoreError::refused(unreadable()).with_source(e))?;
    }
    if roots.is_empty() {
        return Err(StoreError::refused(format!("there is no certificate in {}", file.display())));
    }
    Ok(roots)
}

/// A verifier that checks less than everything: not the name, or not even the signer of the
/// certificate. It does check that the server owns the certificate that it shows.
#[derive(Debug)]
struct Lenient {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
