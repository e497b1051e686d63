//! Baseline server: reads the body, verifies the signature, parses the JSON and responds 202. Stores nothing.

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

/// Response body, about as long as that of a node.
const ACCEPTED_BODY: &[u8] = br#"{"event_id":"evt_0123456789abcdefghijklmnop","idempotency_key":"evt_00000000_0123456789abcdef","status":"accepted"}"#;

/// Hidden command that runs the server.
pub(crate) const COMMAND: &str = "bench-bare";

/// Baseline server; runs where the node under test runs, so that both pay for a separate process.
#[derive(Debug)]
pub(super) struct Baseline {
    pub address: SocketAddr,
    host: BaselineHost,
}

#[derive(Debug)]
enum BaselineHost {
    /// Ends with its standard input.
    Process { _process: tokio::process::Child },
    /// On its own runtime, as large as that of a node.
    InProcess(Option<Runtime>),
}

impl Baseline {
    pub(super) async fn start(host: &NodeHost, leads: &Leads) -> Result<Baseline, Error> {
        match host {
            NodeHost::Process(program) => Baseline::spawn(program, &leads.config).await,
            NodeHost::InProcess => {
                let runtime = runtime()?;
                let listening = runtime.spawn(listen()).await;
                let listener = listening.map_err(|error| Error::Failed(error.to_string()))??;
                let address = listener.local_addr().map_err(Error::io("a listener"))?;
                runtime.spawn(serve(listener, leads.sender()?));
                Ok(Baseline { address, host: BaselineHost::InProcess(Some(runtime)) })
            }
        }
    }

    async fn spawn(program: &Path, config: &Path) -> Result<Baseline, Error> {
        let mut command = tokio::process::Command::new(program);
        command.arg(COMMAND).arg(config).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(Error::io(program.display().to_string()))?;
        let lines = process.stdout.take().map(|stdout| BufReader::new(stdout).lines());
        let mut lines = lines.ok_or_else(|| Error::Failed("the baseline server has no standard output".to_owned()))?;
        let line = lines.next_line().await.map_err(Error::io("the baseline server"))?.unwrap_or_default();
        let address = line.parse().map_err(|_| Error::Failed("the baseline server did not start".to_owned()))?;
        Ok(Baseline { address, host: BaselineHost::Process { _process: process } })
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        if let BaselineHost::InProcess(runtime) = &mut self.host
            && let Some(runtime) = runtime.take()
        {
            // May run within another runtime, where blocking is not allowed.
            runtime.shutdown_background();
        }
    }
}

/// Runs the server for the senders of a configuration and prints its address. Ends with standard input.
pub(crate) fn serve_baseline(config: &Path) -> Result<(), Error> {
    let leads = Leads { config: config.to_owned(), data: config.join("no-data") };
    let sender = leads.sender()?;
    let runtime = runtime()?;
    let listener = runtime.block_on(listen())?;
    let address = listener.local_addr().map_err(Error::io("a listener"))?;
    runtime.spawn(serve(listener, sender));
    let printed = writeln!(io::stdout(), "{address}").and_then(|()| io::stdout().flush());
    printed.map_err(Error::io("standard output"))?;
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
                async move { Ok::<_, Infallible>(respond(&sender, request).await) }
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

async fn respond(sender: &Sender, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let accepted = match body.collect().await {
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
    let mut response = Response::new(Full::new(Bytes::from_static(ACCEPTED_BODY)));
    *response.status_mut() = if accepted { StatusCode::ACCEPTED } else { StatusCode::UNAUTHORIZED };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
