//! Forward proxy of a destination: a tunnel for https, whole URLs for http.

use data_encoding::BASE64;
use hyper::header::HeaderValue;
use sluice_domain::destination::HttpProxy;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use url::{Position, Url};

use super::dialer::ConnectError;
use super::pool::Origin;
use super::sensitive;

/// Bytes of the answer to CONNECT, at the most.
const HEAD_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Proxy {
    /// `http://host:port`
    pub(super) authority: String,
    /// Host and port, for messages.
    name: String,
    pub(super) authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The error names the invalid key.
    pub(super) fn new(settings: &HttpProxy) -> Result<Proxy, String> {
        let refused = || "proxy: must be http://, a host and a port, such as http://proxy.example:3128".to_owned();
        let url = Url::parse(&settings.url).map_err(|_| refused())?;
        let plain = url.username().is_empty() && url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if url.scheme() != "http" || url.host_str().is_none() || !plain {
            return Err(refused());
        }
        let authorization = match &settings.login {
            Some((user, password)) => {
                let encoded = BASE64.encode(format!("{user}:{}", password.expose()).as_bytes());
                Some(sensitive(&format!("Basic {encoded}")).ok_or("proxy_auth: is not valid in a header")?)
            }
            None => None,
        };
        let name = url[Position::BeforeHost..Position::AfterPort].to_owned();
        Ok(Proxy { authority: url[..Position::BeforePath].to_owned(), name, authorization })
    }

    pub(super) fn refuses_credentials(&self) -> String {
        format!("the proxy {} refuses the credentials (status 407); check proxy_auth", self.name)
    }

    pub(super) fn unreachable(&self, error: &ConnectError) -> String {
        let reason = match error {
            ConnectError::Refused(refused) => refused.to_string(),
            ConnectError::Slow => "no connection in time".to_owned(),
            ConnectError::Unknown(text)
            | ConnectError::Network(text)
            | ConnectError::Proxy(text)
            | ConnectError::Tls(text) => text.clone(),
        };
        format!("the proxy {} cannot be reached: {reason}", self.name)
    }
}

/// Opens a tunnel to the origin. The error says why there is none; nothing of the request was sent.
pub(super) async fn tunnel<S>(stream: &mut S, proxy: &Proxy, origin: &Origin) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let host = match origin.host.contains(':') {
        true => format!("[{}]:{}", origin.host, origin.port),
        false => format!("{}:{}", origin.host, origin.port),
    };
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n");
    if let Some(text) = proxy.authorization.as_ref().and_then(|value| value.to_str().ok()) {
        request.push_str(&format!("Proxy-Authorization: {text}\r\n"));
    }
    request.push_str("\r\n");
    let broken = |error: std::io::Error| format!("the proxy {} closed the connection: {error}", proxy.name);
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let mut head = Vec::with_capacity(256);
    // Byte by byte: what follows the head belongs to the tunnel.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(format!("the proxy {} answered with too many headers", proxy.name));
        }
        head.push(stream.read_u8().await.map_err(broken)?);
    }
    match status(&head) {
        Some(200..300) => Ok(()),
        Some(407) => Err(proxy.refuses_credentials()),
        Some(status) => Err(format!("the proxy {} opens no tunnel to {host} (status {status})", proxy.name)),
        None => Err(format!("the proxy {} does not answer in HTTP", proxy.name)),
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::AddressScope;

    fn proxy(url: &str) -> Result<Proxy, String> {
        let login = Some(("ann".to_owned(), "pass word".into()));
        Proxy::new(&HttpProxy { url: url.to_owned(), login })
    }

    #[test]
    fn other_addresses_than_http_host_and_port_are_refused() {
        for wrong in ["https://p.example:3128", "p.example:3128", "http://u:p@p.example", "http://p.example/x", ""] {
            assert!(proxy(wrong).unwrap_err().starts_with("proxy: must be http://"), "{wrong}");
        }
        assert_eq!(proxy("http://P.example:3128/").unwrap().authority, "http://p.example:3128");
    }

    #[tokio::test]
    async fn tunnel_is_opened_with_credentials_and_its_first_byte_is_left_alone() {
        let proxy = proxy("http://p.example:3128").unwrap();
        assert!(!format!("{proxy:?}").contains("YW5u"), "{proxy:?}");
        let origin = Origin { https: true, host: "::1".into(), port: 8443, scope: AddressScope::Anywhere };
        for (answer, expected) in [
            ("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nrest", Ok(())),
            ("HTTP/1.0 407 No\r\n\r\n", Err("refuses the credentials")),
            ("HTTP/1.1 403 No\r\n\r\n", Err("opens no tunnel to [::1]:8443 (status 403)")),
            ("SSH-2.0\r\n\r\n", Err("does not answer in HTTP")),
            ("HTTP/1.1 200", Err("closed the connection")),
        ] {
            let (mut ours, mut theirs) = tokio::io::duplex(1024);
            theirs.write_all(answer.as_bytes()).await.unwrap();
            let opened = if answer.ends_with("200") {
                let (found, ()) = tokio::join!(tunnel(&mut ours, &proxy, &origin), async {
                    theirs.shutdown().await.unwrap();
                });
                found
            } else {
                tunnel(&mut ours, &proxy, &origin).await
            };
            match expected {
                Ok(()) => {
                    opened.unwrap();
                    let mut rest = [0; 4];
                    ours.read_exact(&mut rest).await.unwrap();
                    assert_eq!(&rest, b"rest");
                    let mut sent = [0; 256];
                    let count = theirs.read(&mut sent).await.unwrap();
                    let sent = String::from_utf8_lossy(&sent[..count]);
                    assert!(sent.starts_with("CONNECT [::1]:8443 HTTP/1.1\r\nHost: [::1]:8443\r\n"), "{sent}");
                    assert!(sent.contains("Proxy-Authorization: Basic YW5uOnBhc3Mgd29yZA==\r\n"), "{sent}");
                }
                Err(part) => assert!(opened.unwrap_err().contains(part)),
            }
        }
    }
}
