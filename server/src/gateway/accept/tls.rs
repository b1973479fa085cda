//! TLS to clients and to upstreams.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// Serves TLS with these files, over HTTP/2 or HTTP/1.1.
///
/// # Errors
/// If a file cannot be read, or certificate and key do not match.
pub(in crate::gateway) fn server(files: &Tls) -> Result<TlsAcceptor> {
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .with_context(|| format!("could not read a private key from {}", files.key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates(&files.cert)?, key)
        .with_context(|| format!("{} does not fit {}", files.key.display(), files.cert.display()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Trusts the system's certificates, and those of a file.
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn client(ca: Option<&Path>) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // A system without certificates is no error while no upstream needs them.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = ca {
        for certificate in certificates(file)? {
            roots
                .add(certificate)
                .with_context(|| format!("could not use a certificate of {}", file.display()))?;
        }
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let certificates =
        read().with_context(|| format!("could not read certificates from {}", file.display()))?;
    ensure!(!certificates.is_empty(), "there is no certificate in {}", file.display());
    Ok(certificates)
}
