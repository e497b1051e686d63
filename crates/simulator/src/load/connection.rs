//! One persistent connection: sends a request and reads its response.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Largest response head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Largest response body.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Persistent HTTP/1.1 connection to a loopback address.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadResponse<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// Seconds of `Retry-After`, if it is a number.
    pub retry_after: Option<u64>,
    /// The server closes the connection after this response.
    pub closes: bool,
}

/// Parsed fields of a response head.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    status: u16,
    body_bytes: usize,
    retry_after: Option<u64>,
    closes: bool,
}

impl Connection {
    /// Connects to a loopback address; any other is an `InvalidInput` error.
    pub async fn open(target: SocketAddr) -> io::Result<Connection> {
        if !target.ip().is_loopback() {
            let message = format!("{target} is not a loopback address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, incoming: Vec::with_capacity(1024) })
    }

    /// Sends head and body of a request and reads the response. After an error the connection is unusable.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<LoadResponse<'_>> {
        self.incoming.clear();
        self.stream.write_all(request).await?;
        let head_bytes = loop {
            self.read_some().await?;
            if let Some(end) = end_of_head(&self.incoming) {
                break end;
            }
            if self.incoming.len() > HEAD_BYTES_MAX {
                return Err(invalid("the response head is too long"));
            }
        };
        let head = Head::parse(&self.incoming[..head_bytes])?;
        let total = head_bytes + head.body_bytes;
        while self.incoming.len() < total {
            self.read_some().await?;
        }
        let body = &self.incoming[head_bytes..total];
        Ok(LoadResponse { status: head.status, body, retry_after: head.retry_after, closes: head.closes })
    }

    async fn read_some(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.incoming).await? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the connection closed before the end of the response",
            ));
        }
        Ok(())
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Body length of a request by its head; `None` if it is invalid or too large.
pub(super) fn body_bytes(head: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let line = head
        .split(|byte| *byte == b'\n')
        .find(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME)));
    let Some(line) = line else { return Some(0) };
    let length = std::str::from_utf8(&line[NAME.len()..]).ok()?.trim().parse().ok()?;
    (length <= BODY_BYTES_MAX).then_some(length)
}

impl Head {
    fn parse(head: &[u8]) -> io::Result<Head> {
        let text = std::str::from_utf8(head).map_err(|_| invalid("the response head is not text"))?;
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| invalid("the response is not HTTP/1.1"))?;
        let mut parsed = Head { status, ..Head::default() };
        let mut length = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().ok();
            } else if name.eq_ignore_ascii_case("retry-after") {
                parsed.retry_after = value.parse().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                parsed.closes = value.eq_ignore_ascii_case("close");
            }
        }
        parsed.body_bytes = match length {
            Some(length) if length <= BODY_BYTES_MAX => length,
            Some(_) => return Err(invalid("the response body is too long")),
            None if matches!(status, 204 | 304) => 0,
            None => return Err(invalid("the response has no content length")),
        };
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<(u16, usize, Option<u64>, bool)> {
        let head = Head::parse(text.as_bytes()).ok()?;
        Some((head.status, head.body_bytes, head.retry_after, head.closes))
    }

    #[test]
    fn response_heads_parse_or_are_rejected() {
        assert_eq!(parse("HTTP/1.1 202 Accepted\r\nContent-Length: 17\r\n\r\n"), Some((202, 17, None, false)));
        let busy = "HTTP/1.1 503 Busy\r\nretry-after: 2\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(parse(busy), Some((503, 0, Some(2), true)));
        assert_eq!(parse("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 0, None, false)));
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\n"), None, "no length");
        assert_eq!(parse("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"), None, "too long");
        assert_eq!(parse("SMTP 220\r\n\r\n"), None);
    }
}
