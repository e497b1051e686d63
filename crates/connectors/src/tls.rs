//! TLS client configuration and handshake, shared by every connector.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

/// TLS client configuration. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Trusts only this CA certificate (PEM), or the platform's roots if `None`. The error text does not name the
    /// configuration key; the caller prefixes it.
    pub(crate) fn new(ca_certificate: Option<&str>) -> Result<Tls, String> {
        Tls::with_client(ca_certificate, None)
    }

    /// As [`Tls::new`]; the client authenticates itself with a certificate chain and its private key, both PEM.
    pub(crate) fn with_client(ca_certificate: Option<&str>, client: Option<(&str, &str)>) -> Result<Tls, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let builder = match ca_certificate {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    let certificate = certificate.map_err(|_| "is not a PEM certificate")?;
                    roots.add(certificate).map_err(|error| format!("is not a certificate: {error}"))?;
                }
                if roots.is_empty() {
                    return Err("holds no PEM certificate".to_owned());
                }
                builder.with_root_certificates(roots)
            }
            None => builder
                .with_platform_verifier()
                .map_err(|error| format!("cannot read the system's root certificates: {error}"))?,
        };
        let config = match client {
            Some((certificate, key)) => {
                let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<_, _>>()
                    .map_err(|_| "client_certificate: is not a PEM certificate")?;
                if chain.is_empty() {
                    return Err("client_certificate: holds no PEM certificate".to_owned());
                }
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|_| "client_key: is not a private key in PEM format")?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("client_key: does not fit the client_certificate: {error}"))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Tls(Arc::new(config)))
    }

    /// Restricts ALPN to this protocol.
    pub(crate) fn with_alpn(self, protocol: &[u8]) -> Tls {
        let mut config = Arc::unwrap_or_clone(self.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        Tls(Arc::new(config))
    }

    /// Performs the TLS handshake and verifies the certificate against `host`.
    pub(crate) async fn connect<S>(&self, host: &str, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| std::io::Error::other(format!("`{host}` is not a valid DNS name or IP address for TLS")))?;
        tokio_rustls::TlsConnector::from(self.0.clone()).connect(name, stream).await
    }
}
