//! The least that a webhook receiver can do: read the body, check the signature, parse it, say yes. Nothing is kept.

use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sluice_domain::verify::{self, HeaderSource};
use tokio::net::TcpListener;

use crate::stage::{ANY_PORT, Error, Sender};

/// About as long as the answer of a node.
const YES: &[u8] = br#"{"event_id":"evt_0123456789abcdefghijklmnop","idempotency_key":"evt_00000000_0123456789abcdef","status":"accepted"}"#;

/// A bare server on a runtime of its own, as large as that of a node.
#[derive(Debug)]
pub(super) struct Bare {
    pub address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Bare {
    pub async fn start(sender: Sender) -> Result<Bare, Error> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::io("a runtime"))?;
        let listening = runtime.spawn(TcpListener::bind(ANY_PORT)).await;
        let listener = listening.map_err(|error| Error::Wrong(error.to_string()))?.map_err(Error::io("a listener"))?;
        let address = listener.local_addr().map_err(Error::io("a listener"))?;
        runtime.spawn(serve(listener, sender));
        Ok(Bare { address, runtime: Some(runtime) })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It may be dropped within another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, sender: Sender) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let sender = sender.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let sender = sender.clone();
                async move { Ok::<_, Infallible>(answer(&sender, request).await) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

struct Headers<'a>(&'a HeaderMap);

impl HeaderSource for Headers<'_> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(|value| value.as_bytes())
    }
}

async fn answer(sender: &Sender, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let believed = match body.collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            let raw =
                verify::Request { method: "POST", path_and_query: "/", headers: &Headers(&head.headers), body: &body };
            let now = jiff::Timestamp::now();
            let verified =
                sender.flow().verify.as_ref().is_some_and(|verifier| verify::verify(verifier, &raw, now).is_ok());
            verified && serde_json::from_slice::<serde_json::Value>(&body).is_ok()
        }
        Err(_) => false,
    };
    let mut response = Response::new(Full::new(Bytes::from_static(YES)));
    *response.status_mut() = if believed { StatusCode::ACCEPTED } else { StatusCode::UNAUTHORIZED };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
