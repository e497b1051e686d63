//! TLS adapter for `tokio-postgres`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::tls::Tls;

impl MakeTlsConnect<Socket> for Tls {
    type Stream = EncryptedStream;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsHandshake, io::Error> {
        Ok(TlsHandshake { tls: self.clone(), host: host.to_owned() })
    }
}

#[derive(Debug)]
pub(crate) struct TlsHandshake {
    tls: Tls,
    host: String,
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { Ok(EncryptedStream(Box::new(self.tls.connect(&self.host, stream).await?))) })
    }
}

#[derive(Debug)]
pub(crate) struct EncryptedStream(Box<tokio_rustls::client::TlsStream<Socket>>);

impl TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
