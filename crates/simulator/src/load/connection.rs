//! One connection: a request out, an answer in.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A longer head is no answer.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A longer body is not read.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A kept HTTP/1.1 connection to this machine.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
}

/// A whole answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    pub body: &'a [u8],
    /// The seconds of `Retry-After`, where it has them.
    pub retry_after: Option<u64>,
    /// Whether the connection ends with this answer.
    pub closes: bool,
}

/// The parts of a head that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Head {
    status: u16,
    body_bytes: usize,
    retry_after: Option<u64>,
    closes: bool,
}

impl Connection {
    /// Connects to an address of this machine; any other is an `InvalidInput` error.
    pub async fn open(target: SocketAddr) -> io::Result<Connection> {
        if !target.ip().is_loopback() {
            let message = format!("{target} is not on this machine, and nothing else is ever sent to");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, incoming: Vec::with_capacity(1024) })
    }

    /// Sends a request, head and body, and reads the answer. After an error the connection is of no more use.
    pub async fn send(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.incoming.clear();
        self.stream.write_all(request).await?;
        let head_bytes = loop {
            self.read_some().await?;
            if let Some(end) = end_of_head(&self.incoming) {
                break end;
            }
            if self.incoming.len() > HEAD_BYTES_MAX {
                return Err(invalid("the head of the answer has no end"));
            }
        };
        let head = Head::parse(&self.incoming[..head_bytes])?;
        let whole = head_bytes + head.body_bytes;
        while self.incoming.len() < whole {
            self.read_some().await?;
        }
        let body = &self.incoming[head_bytes..whole];
        Ok(Answer { status: head.status, body, retry_after: head.retry_after, closes: head.closes })
    }

    async fn read_some(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.incoming).await? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended before the answer did"));
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

/// How long the body of a request is, by its head. `None` if that cannot be told.
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
        let text = std::str::from_utf8(head).map_err(|_| invalid("the head of the answer is no text"))?;
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.ok_or_else(|| invalid("the answer is not HTTP/1.1"))?;
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
            Some(_) => return Err(invalid("the body of the answer is too long")),
            None if matches!(status, 204 | 304) => 0,
            None => return Err(invalid("the answer does not say how long it is")),
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
    fn what_matters_of_a_head_is_read_and_the_rest_is_refused() {
        assert_eq!(parse("HTTP/1.1 202 Accepted\r\nContent-Length: 17\r\n\r\n"), Some((202, 17, None, false)));
        let busy = "HTTP/1.1 503 Busy\r\nretry-after: 2\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(parse(busy), Some((503, 0, Some(2), true)));
        assert_eq!(parse("HTTP/1.1 204 No Content\r\n\r\n"), Some((204, 0, None, false)));
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\n"), None, "no length");
        assert_eq!(parse("HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n"), None, "too long");
        assert_eq!(parse("SMTP 220\r\n\r\n"), None);
    }
}
