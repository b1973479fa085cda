//! Authorities and certificates for TLS.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use semel::store::Token;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::packages::{Account, NOBODY};

/// An authority that signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new authority. Its name tells it from the others in errors.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self { issuer: CertifiedIssuer::self_signed(params, key).unwrap() }
    }

    /// Its own certificate, as PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for the host or the user of this name.
    pub fn certify(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Certificate { cert: cert.pem(), key: key.serialize_pem() }
    }

    /// A client that trusts only this authority, and has this certificate to show.
    pub fn client(&self, shown: Option<&Certificate>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.unwrap().with_root_certificates(roots);
        match shown {
            Some(certificate) => {
                let (chain, key) = certificate.parsed();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        }
    }

    /// A connection to `localhost` at this address by a client that trusts only this authority and
    /// offers these protocols; `None` if there is none.
    pub async fn greet(&self, address: SocketAddr, offered: &[&str]) -> Option<TlsStream<TcpStream>> {
        let mut config = self.client(None);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let socket = TcpStream::connect(address).await.ok()?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.ok()
    }
}

/// A certificate and its private key, as PEM.
pub struct Certificate {
    /// The certificate.
    pub cert: String,
    /// The private key.
    pub key: String,
}

impl Certificate {
    /// An acceptor of connections that shows this certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let (chain, key) = self.parsed();
        let config = builder.unwrap().with_no_client_auth().with_single_cert(chain, key);
        TlsAcceptor::from(Arc::new(config.unwrap()))
    }

    fn parsed(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let cert = CertificateDer::from_pem_slice(self.cert.as_bytes()).unwrap();
        (vec![cert], PrivateKeyDer::from_pem_slice(self.key.as_bytes()).unwrap())
    }
}

/// A folder of files for a server, which is removed when this is dropped.
pub struct Papers(PathBuf);

impl Default for Papers {
    fn default() -> Self {
        Self::new()
    }
}

impl Papers {
    /// A new folder.
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("semel-papers-{}", Token::random()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    /// Writes a file that the servers can read and no other account can, and returns its path. A
    /// server accepts no private key that others can read.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        if Account::detect().unwrap().is_root() {
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        path.display().to_string()
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
