//! Certificates for a test, and TLS to a gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// An authority of a test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate of such an authority, and its private key, as PEM.
pub(crate) struct Certificate {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("valid names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for this name.
    pub(crate) fn certify(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a valid name");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate");
        Certificate { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A TLS connection as a client that trusts only this authority, and offers these protocols.
    pub(crate) async fn greet(&self, address: SocketAddr, offered: &[&str]) -> Option<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(address).await.ok()?;
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.ok()
    }
}

impl Certificate {
    /// An acceptor with this certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let cert = CertificateDer::from_pem_slice(self.cert.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let config = builder.expect("versions").with_no_client_auth().with_single_cert(vec![cert], key);
        TlsAcceptor::from(Arc::new(config.expect("they fit")))
    }
}
