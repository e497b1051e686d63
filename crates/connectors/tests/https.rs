//! HTTPS: the server's certificate is verified against the system's roots.

#![allow(clippy::unwrap_used)]

use std::process::Command;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use sluice_connectors::node_client::{NodeClient, NodeError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Environment variable with the server's URL, for the child process.
const URL: &str = "HTTPS_TEST_URL";

/// Starts a server that responds `{}` to every request. Returns its URL and its CA certificate.
async fn server() -> (String, String) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".into()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    // A client without this ALPN protocol fails the handshake.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    (url, authority.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_trusted_only_with_a_trusted_ca() {
    let (url, authority) = server().await;
    let untrusted = NodeClient::new(&url, None).unwrap().get("/", &[]).await.unwrap_err();
    let NodeError::Unreachable { reason, .. } = &untrusted else { panic!("{untrusted}") };
    assert!(reason.starts_with("No TLS connection to localhost: invalid peer certificate"), "{reason}");
    assert!(reason.ends_with("Nothing was sent."), "{reason}");

    // The roots are loaded once per process, so a child process tests the trusted case.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--ignored"]).env("SSL_CERT_FILE", &file).env(URL, &url);
    let child = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[tokio::test]
#[ignore = "runs as a child process of the test above"]
async fn child() {
    let url = std::env::var(URL).unwrap();
    assert_eq!(NodeClient::new(&url, None).unwrap().get("/", &[]).await.unwrap(), serde_json::json!({}));
}
