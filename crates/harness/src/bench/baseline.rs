//! The least that a webhook receiver can do: read the body, check the signature, parse it, say yes. Nothing is kept.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sluice_domain::verify::{self, HeaderSource};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::NodeHost;
use crate::{ANY_PORT, Error, Leads, Sender};

/// About as long as the answer of a node.
const YES: &[u8] = br#"{"event_id":"evt_0123456789abcdefghijklmnop","idempotency_key":"evt_00000000_0123456789abcdef","status":"accepted"}"#;

/// The hidden command that runs it.
pub const COMMAND: &str = "bench-bare";

/// A bare server, where the node under test will be: what a process of its own costs, it costs both.
#[derive(Debug)]
pub(super) struct Baseline {
    pub address: SocketAddr,
    home: BareHome,
}

#[derive(Debug)]
enum BareHome {
    /// It ends when its standard input does.
    Process { _process: tokio::process::Child },
    /// On a runtime as large as that of a node.
    Here(Option<Runtime>),
}

impl Baseline {
    pub async fn start(home: &NodeHost, leads: &Leads) -> Result<Baseline, Error> {
        match home {
            NodeHost::Process(program) => Baseline::beside(program, &leads.config).await,
            NodeHost::Here => {
                let runtime = runtime()?;
                let listening = runtime.spawn(listen()).await;
                let listener = listening.map_err(|error| Error::Wrong(error.to_string()))??;
                let address = listener.local_addr().map_err(Error::io("a listener"))?;
                runtime.spawn(serve(listener, leads.sender()?));
                Ok(Baseline { address, home: BareHome::Here(Some(runtime)) })
            }
        }
    }

    async fn beside(program: &Path, config: &Path) -> Result<Baseline, Error> {
        let mut command = tokio::process::Command::new(program);
        command.arg(COMMAND).arg(config).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(Error::io(program.display().to_string()))?;
        let said = process.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let mut said = said.ok_or_else(|| Error::Wrong("the bare server says nothing".to_owned()))?;
        let line = said.next_line().await.map_err(Error::io("the bare server"))?.unwrap_or_default();
        let address = line.parse().map_err(|_| Error::Wrong("the bare server did not start".to_owned()))?;
        Ok(Baseline { address, home: BareHome::Process { _process: process } })
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        if let BareHome::Here(runtime) = &mut self.home
            && let Some(runtime) = runtime.take()
        {
            // It may be dropped within another runtime, where waiting is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// Serves bare answers to the senders of a configuration, and says where. Ends when standard input does.
pub fn serve_bare(config: &Path) -> Result<(), Error> {
    let leads = Leads { config: config.to_owned(), data: config.join("no-data") };
    let sender = leads.sender()?;
    let runtime = runtime()?;
    let listener = runtime.block_on(listen())?;
    let address = listener.local_addr().map_err(Error::io("a listener"))?;
    runtime.spawn(serve(listener, sender));
    let told = writeln!(io::stdout(), "{address}").and_then(|()| io::stdout().flush());
    told.map_err(Error::io("standard output"))?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(Error::io("standard input"))?;
    runtime.shutdown_background();
    Ok(())
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::io("a runtime"))
}

async fn listen() -> Result<TcpListener, Error> {
    TcpListener::bind(ANY_PORT).await.map_err(Error::io("a listener"))
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
