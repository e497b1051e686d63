//! TCP server with a scripted response per connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Stops when dropped.
pub(crate) struct RawServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl RawServer {
    /// Runs `each` for every connection.
    pub(crate) async fn start<F>(each: impl Fn(TcpStream) -> F + Send + 'static) -> RawServer
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(each(stream));
            }
        });
        RawServer { address, connections, task }
    }

    /// Responds to the first request of every connection with these bytes, then closes.
    pub(crate) async fn responding(bytes: impl Into<Vec<u8>>) -> RawServer {
        let bytes: Arc<[u8]> = bytes.into().into();
        RawServer::start(move |mut stream| {
            let bytes = bytes.clone();
            async move {
                read_request(&mut stream).await;
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
            }
        })
        .await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for RawServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Address without a listener.
pub(crate) async fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Reads one request with its body.
pub(crate) async fn read_request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text[..head]
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.trim().parse::<usize>().unwrap());
            if read.len() >= head + 4 + length {
                return String::from_utf8(read).unwrap();
            }
        }
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return String::from_utf8(read).unwrap(),
            Ok(count) => read.extend_from_slice(&buffer[..count]),
        }
    }
}
