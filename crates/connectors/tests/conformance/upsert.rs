//! `http.upsert` and the upsert of a declared connector, at a server that makes another record of every create.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluice_connectors::{Call, Connectors};
use sluice_domain::action::Action;
use sluice_domain::connector::{
    ActionDefinition, Connector, ConnectorAuth, DeclaredDestination, DefinedType, ErrorFields, ParameterDefinition,
    StatusRange, Success, UpsertRule, register,
};
use sluice_domain::destination::DestinationKind;
use sluice_domain::outcome::{EffectClass, Outcome, Readback};
use sluice_domain::template::{Expression, Template};
use tokio::io::AsyncWriteExt;

use crate::raw::{RawServer, read_request};
use crate::{PATIENT, brief, call, connectors, to_http};

/// What the server does with the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Next {
    Answer,
    /// Applies it and closes the connection.
    Drop,
    /// 200 with an error in the body.
    Report(&'static str),
}

/// Records by id, the requests so far, and what happens to the next ones.
#[derive(Debug, Default)]
struct Crm {
    records: Vec<(u64, String)>,
    requests: Vec<String>,
    next: Vec<Next>,
}

impl Crm {
    /// An RPC with a method, an identity and, for an update, an id.
    fn rpc(&mut self, request: &str) -> Option<Value> {
        let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1)?).ok()?;
        let method = body["method"].as_str()?.to_owned();
        self.requests.push(method.clone());
        let next = if self.next.is_empty() { Next::Answer } else { self.next.remove(0) };
        if let Next::Report(error) = next {
            return Some(json!({"error": [error, []]}));
        }
        let who = body["who"].as_str().unwrap_or_default().to_owned();
        let result = match method.as_str() {
            "find" => self.records.iter().filter(|(_, of)| *of == who).map(|(id, _)| json!({"id": id})).collect(),
            "create" => {
                let id = self.records.len() as u64 + 1;
                self.records.push((id, who));
                json!([id])
            }
            _ => json!(self.records.iter().any(|(id, _)| json!(id) == body["ids"][0])),
        };
        (next == Next::Answer).then(|| json!({"result": result, "error": null}))
    }
}

async fn serve(crm: &Arc<Mutex<Crm>>) -> RawServer {
    let crm = crm.clone();
    RawServer::start(move |mut stream| {
        let crm = crm.clone();
        async move {
            let request = read_request(&mut stream).await;
            let answer = crm.lock().unwrap().rpc(&request);
            if let Some(answer) = answer.map(|answer| answer.to_string()) {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        }
    })
    .await
}

fn with(who: &str) -> Value {
    json!({
        "identity": who, "error_at": "/error", "retry_on": ["busy"],
        "find": {"url": "/", "json": {"method": "find", "who": who}, "records": "/result", "id": "/id"},
        "create": {"url": "/", "json": {"method": "create", "who": who}, "id": "/result/0"},
        "update": {"method": "POST", "url": "/", "json": {"method": "update", "ids": [null]}, "id_at": "/ids/0"},
    })
}

fn text(text: &str) -> Template {
    Template::parse_text(text).unwrap()
}

fn rpc(method: &str, more: (&str, Template)) -> Template {
    let json = Template::Map(vec![("method".to_owned(), text(method)), (more.0.to_owned(), more.1)]);
    Template::Map(vec![("url".to_owned(), text("/").into_url()), ("json".to_owned(), json)])
}

/// The same as a declared connector.
fn declared(base_url: &str) -> (Connectors, Action) {
    let expression = |source: &str| Expression::parse(source).unwrap();
    let action = ActionDefinition {
        name: "x-crm.party".to_owned(),
        about: "Writes a party.".to_owned(),
        parameters: vec![ParameterDefinition {
            name: "identity".to_owned(),
            value_type: DefinedType::Text,
            required: false,
            about: "Who.".to_owned(),
        }],
        any_of: vec![],
        class: EffectClass::Verifiable,
        because: "Of this test.".to_owned(),
        is_mail: false,
        request: rpc("create", ("who", text("{{ with.identity }}"))),
        success: Success {
            statuses: vec![StatusRange { first: 200, last: 299 }],
            condition: Some(expression("not response.body.error")),
        },
        result: None,
        read_back: None,
        batch: None,
        upsert: Some(UpsertRule {
            identity: text("{{ with.identity }}"),
            find: rpc("find", ("who", text("{{ with.identity }}"))),
            records: expression("response.body.result"),
            record_id: expression("record.id"),
            created_id: expression("response.body.result[0]"),
            update: Some(rpc("update", ("ids", Template::List(vec![text("{{ record.id }}")])))),
        }),
    };
    let connector = register(Connector {
        name: "x-crm".to_owned(),
        about: "A CRM.".to_owned(),
        keys: vec![],
        base_url: Some(text("https://crm.invalid")),
        headers: vec![],
        auth: ConnectorAuth::None,
        error: ErrorFields::default(),
        wait_from: vec![],
        failures: vec![],
        actions: vec![action],
        source: "x-crm".to_owned(),
    })
    .unwrap();
    let action = Action::Declared(connector.actions().next().unwrap());
    let kind = DeclaredDestination { connector, base_url: Some(base_url.to_owned()), values: vec![] };
    (connectors([("there", DestinationKind::Declared(kind))]), action)
}

/// Both forms, at a server of their own.
async fn forms() -> Vec<(Arc<Mutex<Crm>>, RawServer, Connectors, Action)> {
    let mut forms = vec![];
    for is_declared in [false, true] {
        let crm = Arc::new(Mutex::new(Crm::default()));
        let server = serve(&crm).await;
        let (connectors, action) = match is_declared {
            true => declared(&server.url()),
            false => (to_http(&server.url()), Action::HttpUpsert),
        };
        forms.push((crm, server, connectors, action));
    }
    forms
}

fn requests(crm: &Mutex<Crm>) -> String {
    std::mem::take(&mut crm.lock().unwrap().requests).join(" ")
}

#[tokio::test]
async fn a_record_is_looked_for_created_updated_and_remembered() {
    for (crm, _server, connectors, action) in forms().await {
        let ada = with("ada");
        let upsert = || call(action, &ada, PATIENT);
        let done = |created: bool| Outcome::Done { result: json!({"id": 1, "identity": "ada", "created": created}) };
        assert_eq!(connectors.call(upsert()).await, done(true));
        assert_eq!(requests(&crm), "find create");
        assert_eq!(connectors.call(upsert()).await, done(false));
        assert_eq!(requests(&crm), "find update");
        assert_eq!(connectors.call(Call { record: Some(&json!(1)), ..upsert() }).await, done(false));
        assert_eq!(requests(&crm), "update", "a remembered record is not looked for");
        assert_eq!(crm.lock().unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn a_lost_create_is_unsure_and_found_by_its_read_back() {
    for (crm, _server, connectors, action) in forms().await {
        let ada = with("ada");
        let upsert = || call(action, &ada, PATIENT);
        assert_eq!(connectors.read_back(upsert()).await, Readback::Absent);
        crm.lock().unwrap().next = vec![Next::Answer, Next::Drop];
        assert_eq!(brief(&connectors.call(upsert()).await), "unsure retryable reset");
        let found = Readback::Present(json!({"id": 1, "identity": "ada"}));
        assert_eq!(connectors.read_back(upsert()).await, found);
        assert_eq!(requests(&crm), "find find create find update");
        // A lost look and a lost update change nothing.
        for next in [vec![Next::Drop], vec![Next::Answer, Next::Drop]] {
            crm.lock().unwrap().next = next;
            assert_eq!(brief(&connectors.call(upsert()).await), "retry retryable reset");
        }
        assert_eq!(crm.lock().unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn errors_with_status_200_several_records_and_a_missing_identity_are_no_success() {
    for (crm, _server, connectors, action) in forms().await {
        let ada = with("ada");
        let upsert = || call(action, &ada, PATIENT);
        if action == Action::HttpUpsert {
            for (error, expected) in
                [("wrong field", "reject permanent reported-error"), ("busy", "retry retryable reported-error")]
            {
                crm.lock().unwrap().next = vec![Next::Answer, Next::Report(error)];
                assert_eq!(brief(&connectors.call(upsert()).await), expected);
            }
        }
        assert!(crm.lock().unwrap().records.is_empty(), "an error is no record");
        crm.lock().unwrap().records = vec![(1, "ada".to_owned()), (2, "ada".to_owned())];
        assert_eq!(brief(&connectors.call(upsert()).await), "reject permanent several-records");
        requests(&crm);
        for nobody in [json!(null), json!(" ")] {
            let mut with = ada.clone();
            with["identity"] = nobody;
            assert_eq!(brief(&connectors.call(call(action, &with, PATIENT)).await), "reject identity no-identity");
        }
        assert_eq!(requests(&crm), "", "nothing is sent");
    }
}

#[tokio::test]
async fn web_page_in_place_of_an_answer_to_the_look_creates_nothing() {
    let page = "<!DOCTYPE html><html><body>Back soon</body></html>";
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", page.len());
    let server = RawServer::responding(head + page).await;
    let mut without_records = with("ada");
    without_records["find"] = json!({"url": "/contacts/ada", "id": "/id"});
    let (declared, action) = declared(&server.url());
    for (connectors, action, with) in [
        (to_http(&server.url()), Action::HttpUpsert, &without_records),
        (to_http(&server.url()), Action::HttpUpsert, &with("ada")),
        (declared, action, &json!({"identity": "ada"})),
    ] {
        let before = server.connections();
        let outcome = connectors.call(call(action, with, PATIENT)).await;
        assert_eq!(brief(&outcome), "retry retryable unexpected-response");
        assert_eq!(server.connections() - before, 1, "only the look was sent");
        let found = connectors.read_back(call(action, with, PATIENT)).await;
        assert!(matches!(found, Readback::Unreadable(_)), "{found:?}");
    }
}
