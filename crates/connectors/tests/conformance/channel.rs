//! Connections of an HTTP destination: client certificates, an own CA, a forward proxy; and access tokens that expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::json;
use sluice_connectors::{BuildProblem, Connectors, OutboundSettings};
use sluice_domain::destination::{
    ClientCredentialsIn, DestinationKind, HttpAuth, HttpChannel, HttpDestination, HttpOAuth, HttpProxy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::raw::{RawServer, read_request};
use crate::{PATIENT, brief, connectors, destination, http_at, request};

/// A certificate authority, and what it issued.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Certificate and key of this name.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// Starts an HTTPS server that wants a certificate of this authority; returns its URL.
async fn mutual_tls(authority: &Authority) -> String {
    let (certificate, key) = authority.issue("localhost");
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
                let _ = stream.shutdown().await;
            });
        }
    });
    url
}

fn through(base_url: &str, channel: HttpChannel) -> Connectors {
    connectors([("there", DestinationKind::Http(HttpDestination { channel, ..http_at(base_url) }))])
}

#[tokio::test]
async fn client_certificate_opens_a_server_that_wants_one() {
    let authority = Authority::new();
    let url = mutual_tls(&authority).await;
    let (certificate, key) = authority.issue("sluice");
    let (stranger, stranger_key) = Authority::new().issue("sluice");
    let with = json!({"url": "/leads", "method": "PUT"});
    let trusted = HttpChannel { ca_certificate: Some(authority.pem().into()), ..HttpChannel::default() };
    let client = |certificate: &rcgen::Certificate, key: &KeyPair| HttpChannel {
        client_certificate: Some((certificate.pem().into(), key.serialize_pem().into())),
        ..trusted.clone()
    };
    let outcome = through(&url, client(&certificate, &key)).call(request(&with, PATIENT)).await;
    assert_eq!(brief(&outcome), "done", "{outcome:?}");

    let outcome = through(&url, HttpChannel::default()).call(request(&with, PATIENT)).await;
    assert_eq!(brief(&outcome), "retry retryable tls", "the CA is not trusted: {outcome:?}");
    // TLS 1.3 refuses a client after its handshake has ended, so the request may have been written.
    for refused in [trusted.clone(), client(&stranger, &stranger_key)] {
        let outcome = through(&url, refused).call(request(&with, PATIENT)).await;
        assert_ne!(brief(&outcome), "done", "{outcome:?}");
    }
}

#[tokio::test]
async fn certificate_and_key_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("sluice");
    let (_, other) = authority.issue("sluice");
    for (chain, key, expected) in [
        ("nothing".to_owned(), key.serialize_pem(), "client_certificate: holds no PEM certificate"),
        (certificate.pem(), "hunter2".to_owned(), "client_key: is not a private key in PEM format"),
        (certificate.pem(), other.serialize_pem(), "client_key: does not fit the client_certificate"),
    ] {
        let channel = HttpChannel { client_certificate: Some((chain.into(), key.into())), ..HttpChannel::default() };
        let kind = DestinationKind::Http(HttpDestination { channel, ..http_at("https://a.example") });
        let problem = Connectors::new(&[destination("there", kind)], &OutboundSettings::default()).unwrap_err();
        let BuildProblem::Destination { problem, .. } = &problem else { panic!("{problem}") };
        assert!(problem.starts_with(expected) && !problem.contains("hunter2"), "{problem}");
    }
}

/// A forward proxy: tunnels, and requests with whole URLs. Counts what it lets through.
async fn forward_proxy(credentials: &'static str, passed: Arc<AtomicUsize>) -> RawServer {
    RawServer::start(move |mut client| {
        let passed = passed.clone();
        async move {
            let head = read_request(&mut client).await;
            let expected = format!("proxy-authorization: basic {credentials}").to_ascii_lowercase();
            if !head.to_ascii_lowercase().contains(&expected) {
                let _ = client.write_all(b"HTTP/1.1 407 No\r\ncontent-length: 0\r\n\r\n").await;
                return;
            }
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            passed.fetch_add(1, Ordering::SeqCst);
            if method == "CONNECT" {
                let Ok(mut server) = TcpStream::connect(target).await else {
                    let _ = client.write_all(b"HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n").await;
                    return;
                };
                client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
                return;
            }
            let rest = target.strip_prefix("http://").unwrap();
            let (authority, _) = rest.split_once('/').unwrap();
            let Ok(mut server) = TcpStream::connect(authority).await else { return };
            let own = head.replacen(&format!("http://{authority}"), "", 1);
            server.write_all(own.as_bytes()).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await
}

fn proxied(url: &str, password: &str) -> Option<HttpProxy> {
    Some(HttpProxy { url: url.to_owned(), login: Some(("ann".to_owned(), password.into())) })
}

#[tokio::test]
async fn proxy_tunnels_https_and_forwards_http() {
    let passed = Arc::new(AtomicUsize::new(0));
    // ann:hunter2
    let proxy = forward_proxy("YW5uOmh1bnRlcjI=", passed.clone()).await;
    let authority = Authority::new();
    let secure = mutual_tls(&authority).await;
    let (certificate, key) = authority.issue("sluice");
    let channel = |password: &str| HttpChannel {
        ca_certificate: Some(authority.pem().into()),
        client_certificate: Some((certificate.pem().into(), key.serialize_pem().into())),
        proxy: proxied(&proxy.url(), password),
    };
    let with = json!({"url": "/leads", "method": "PUT", "json": {"a": 1}});
    let outcome = through(&secure, channel("hunter2")).call(request(&with, PATIENT)).await;
    assert_eq!((brief(&outcome).as_str(), passed.load(Ordering::SeqCst)), ("done", 1), "{outcome:?}");

    let plain = RawServer::start(|mut stream| async move {
        let head = read_request(&mut stream).await;
        assert!(head.starts_with("PUT /leads HTTP/1.1\r\n"), "{head}");
        let _ = stream.write_all(b"HTTP/1.1 204 Ok\r\n\r\n").await;
    })
    .await;
    let outcome = through(&plain.url(), channel("hunter2")).call(request(&with, PATIENT)).await;
    assert_eq!((brief(&outcome).as_str(), passed.load(Ordering::SeqCst)), ("done", 2), "{outcome:?}");

    // A proxy that forwards answers with its refusal where the destination would answer.
    for url in [&secure, &plain.url()] {
        let outcome = through(url, channel("wrong")).call(request(&with, PATIENT)).await;
        assert_eq!(brief(&outcome), "retry retryable proxy", "{outcome:?}");
        assert!(outcome.failure().unwrap().message.contains("proxy_auth"), "{outcome:?}");
    }
    let nowhere = HttpChannel { proxy: proxied("http://127.0.0.1:1", "hunter2"), ..HttpChannel::default() };
    let outcome = through(&secure, nowhere).call(request(&with, PATIENT)).await;
    assert_eq!(brief(&outcome), "retry retryable proxy", "{outcome:?}");
    assert_eq!(passed.load(Ordering::SeqCst), 2);
}

/// A provider with a token endpoint. Each token is refused after its first use; `lifetime` is what the endpoint promises.
async fn expiring(issued: Arc<AtomicUsize>, lifetime: u32) -> RawServer {
    let used = Arc::new(AtomicUsize::new(0));
    RawServer::start(move |mut stream| {
        let (issued, used) = (issued.clone(), used.clone());
        async move {
            let head = read_request(&mut stream).await;
            let current = issued.load(Ordering::SeqCst);
            let (status, body) = if head.starts_with("POST /token") {
                // sh%2Fp:hunter2
                assert!(head.contains("authorization: Basic c2glMkZwOmh1bnRlcjI=\r\n"), "{head}");
                assert!(head.ends_with("grant_type=client_credentials&scope=leads.write%20leads.read"), "{head}");
                let token = format!("tok-{}", issued.fetch_add(1, Ordering::SeqCst) + 1);
                ("200 OK", json!({"access_token": token, "token_type": "Bearer", "expires_in": lifetime}))
            } else if head.contains(&format!("authorization: Bearer tok-{current}\r\n"))
                && used.swap(current, Ordering::SeqCst) != current
            {
                ("201 Created", json!({"id": current}))
            } else {
                ("401 No", json!({"error": "expired"}))
            };
            let body = body.to_string();
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    })
    .await
}

fn oauth_at(server: &RawServer, token_path: &str) -> Connectors {
    let auth = HttpAuth::OAuth(Box::new(HttpOAuth {
        token_url: format!("{}{token_path}", server.url()),
        client_id: "sh/p".to_owned(),
        client_secret: "hunter2".into(),
        scope: Some("leads.write leads.read".to_owned()),
        audience: None,
        credentials_in: ClientCredentialsIn::Header,
    }));
    connectors([("there", DestinationKind::Http(HttpDestination { auth, ..http_at(&server.url()) }))])
}

#[tokio::test]
async fn access_token_is_fetched_once_and_again_when_it_is_refused() {
    let issued = Arc::new(AtomicUsize::new(0));
    let server = expiring(issued.clone(), 3600).await;
    let connectors = oauth_at(&server, "/token");
    let with = json!({"url": "/leads", "json": {"a": 1}, "result": {"id": "response.body.id"}});
    for expected in 1..=3 {
        let outcome = connectors.call(request(&with, PATIENT)).await;
        assert_eq!(brief(&outcome), "done", "{outcome:?}");
        // The first call of each round uses a new token; the token before it was refused once.
        assert_eq!(issued.load(Ordering::SeqCst), expected, "{outcome:?}");
    }
    let preview = connectors.preview(&request(&with, PATIENT)).unwrap();
    assert!(preview.headers.contains(&("authorization".to_owned(), "Bearer ***".to_owned())), "{preview:?}");
    assert!(!format!("{connectors:?}").contains("hunter2"));
}

#[tokio::test]
async fn token_endpoint_that_refuses_the_client_is_an_authentication_failure() {
    let issued = Arc::new(AtomicUsize::new(0));
    let server = expiring(issued.clone(), 3600).await;
    let connectors = oauth_at(&server, "/elsewhere");
    let outcome = connectors.call(request(&json!({"url": "/leads"}), PATIENT)).await;
    assert_eq!(brief(&outcome), "reject auth expired", "{outcome:?}");
    assert_eq!(issued.load(Ordering::SeqCst), 0);
}
