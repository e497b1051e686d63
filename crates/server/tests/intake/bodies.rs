//! Body forms and encodings.

use std::io::Write;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::fixture::{Answer, World, sign};

pub(crate) const QUEUES: &str = "queues: [leads]\n";

const PLAIN: &str = "name: plain\ntriggers: [{ http: { path: /in, idempotency: { key_from: body.id }, body_max: 4KiB } }]\nsteps: [{ queue: leads }]\n";

pub(crate) async fn plain() -> World {
    World::start_with(&[("flow.yml", PLAIN), ("queues.yml", QUEUES)]).await
}

pub(crate) async fn post_json(world: &World, path: &str, body: &Value) -> Answer {
    post(world, path, &[("content-type", "application/json")], body.to_string().into_bytes()).await
}

pub(crate) async fn post(world: &World, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    let mut request = world.client.post(format!("{}{path}", world.intake)).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request.send().await.unwrap()).await
}

pub(crate) async fn raw(world: &World, event: &str) -> Value {
    world.reveal(event, "test").await["raw"].clone()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zlib(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn deflate(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn zstd(body: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(body, ruzstd::encoding::CompressionLevel::Fastest)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_content_encoding_is_undone_and_bounded() {
    let world = plain().await;
    let brotli = BASE64.decode(b"CwaAeyJpZCI6ImJyLTEifQM=").unwrap();
    for (encoding, id, body) in [
        ("gzip", "gz-1", gzip(br#"{"id":"gz-1"}"#)),
        ("x-gzip", "gz-2", gzip(br#"{"id":"gz-2"}"#)),
        ("deflate", "de-1", zlib(br#"{"id":"de-1"}"#)),
        ("deflate", "de-2", deflate(br#"{"id":"de-2"}"#)),
        ("br", "br-1", brotli),
        ("zstd", "zs-1", zstd(br#"{"id":"zs-1"}"#)),
        ("identity", "id-1", br#"{"id":"id-1"}"#.to_vec()),
    ] {
        let answer = post(&world, "/in", &[("content-encoding", encoding)], body).await;
        assert_eq!(answer.body["idempotency_key"], id, "{encoding}: {}", answer.body);
        assert_eq!(
            raw(&world, &answer.event()).await,
            json!({"id": id}),
            "what is stored can be read without its encoding"
        );
    }
    let bomb = format!("{{\"id\":\"{}\"}}", "0".repeat(2_000_000)).into_bytes();
    for (encoding, body) in [("gzip", gzip(&bomb)), ("deflate", zlib(&bomb))] {
        let many = post(&world, "/in", &[("content-encoding", encoding)], body).await;
        assert_eq!(
            (many.status, many.body["code"].as_str()),
            (413, Some("body-too-large")),
            "{encoding}: {}",
            many.body
        );
    }
    for (encoding, body, status, code) in [
        ("gzip", b"{}".to_vec(), 400, "content-encoding-invalid"),
        ("zstd", b"{}".to_vec(), 400, "content-encoding-invalid"),
        ("compress", b"{}".to_vec(), 415, "content-encoding-unsupported"),
        ("gzip, br", b"{}".to_vec(), 415, "content-encoding-unsupported"),
    ] {
        let answer = post(&world, "/in", &[("content-encoding", encoding)], body).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{encoding}: {}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signature_covers_the_raw_bytes() {
    let world = World::start().await;
    let lead = crate::fixture::lead("zipped").to_string();
    let body = gzip(lead.as_bytes());
    for (signature, status) in [(sign(&body), 202), (sign(lead.as_bytes()), 401)] {
        let headers = [("content-encoding", "gzip"), ("x-signature", signature.as_str())];
        assert_eq!(post(&world, "/in/website", &headers, body.clone()).await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_requests_are_rejected() {
    let world = plain().await;
    let deep = format!("{{\"id\":{}{}}}", "[".repeat(80), "]".repeat(80));
    for (headers, body, status, code, word) in [
        (
            ("content-type", "application/json; charset=iso-8859-1"),
            &b"{}"[..],
            415,
            "charset-unsupported",
            "iso-8859-1",
        ),
        (
            ("content-type", "application/json; charset=\"UTF-8\""),
            b"{\"id\":\"\xff\"}",
            400,
            "utf8-invalid",
            "offset 7",
        ),
        (("content-type", "application/json"), br#"{"id":1,"id":2}"#, 400, "json-duplicate-key", "id"),
        (("content-type", "application/json"), deep.as_bytes(), 400, "json-too-deep", "64"),
        (
            ("content-type", "application/json"),
            br#"{"id":123456789012345678901234567890}"#,
            400,
            "number-too-large",
            "send it as text",
        ),
        (("content-type", "application/x-www-form-urlencoded"), b"a=1&a[b]=2&id=1", 400, "form-invalid", "`a[b]`"),
        (
            ("content-type", "multipart/form-data; boundary=x"),
            b"--x\r\ncontent-disposition: form-data; name=cv; filename=cv.pdf\r\n\r\n%PDF\r\n--x--",
            400,
            "multipart-file",
            "`cv`",
        ),
        (("content-type", "text/xml"), b"<a/>", 415, "content-type-unsupported", "application/json"),
    ] {
        let answer = post(&world, "/in", &[headers], body.to_vec()).await;
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{}", answer.body);
        assert!(answer.body["detail"].as_str().unwrap().contains(word), "{}", answer.body);
    }
    assert_eq!(world.get("/api/v1/events").await["items"], json!([]));
    let lenient = PLAIN.replace("body_max: 4KiB", "body: { duplicate_keys: last }");
    let world = World::start_with(&[("flow.yml", &lenient), ("queues.yml", QUEUES)]).await;
    assert_eq!(post(&world, "/in", &[], br#"{"id":1,"id":2}"#.to_vec()).await.body["idempotency_key"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_are_read_nested() {
    let world = plain().await;
    let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
    let answer =
        post(&world, "/in", &[form], b"id=f1&data[email]=a%40b.c&data[merges][FNAME]=Zo%C3%AB&tag=1&tag=2".to_vec())
            .await;
    let expected = json!({"id": "f1", "data": {"email": "a@b.c", "merges": {"FNAME": "Zoë"}}, "tag": ["1", "2"]});
    assert_eq!(raw(&world, &answer.event()).await, expected);
    let parts = b"--x\r\ncontent-disposition: form-data; name=id\r\n\r\nm1\r\n--x\r\ncontent-disposition: form-data; name=\"data[email]\"\r\n\r\na@b.c\r\n--x--\r\n";
    let multipart = ("content-type", "multipart/form-data; boundary=x");
    let answer = post(&world, "/in", &[multipart], parts.to_vec()).await;
    assert_eq!(raw(&world, &answer.event()).await, json!({"id": "m1", "data": {"email": "a@b.c"}}));
    let wrapped = post(&world, "/in", &[form], b"payload=%7B%22id%22%3A%22interaction%22%7D".to_vec()).await;
    assert_eq!(wrapped.body["idempotency_key"], "interaction");
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_beyond_what_a_double_holds_arrive_unchanged() {
    let worker = "name: to-sink\nconsumes: leads\nrun: [{ name: send, run: http.request, destination: sink, with: { url: /in, method: PUT, json: { whole: \"{{ body.n }}\", computed: \"{{ [body.n, body.m] | first }}\", text: \"n={{ body.m }}\", all: \"{{ body }}\" } } }]\n";
    let world = World::start_with(&[("flow.yml", PLAIN), ("queues.yml", QUEUES), ("worker.yml", worker)]).await;
    let body = r#"{"id":"n","n":9007199254740993,"m":18446744073709551615,"decimal":0.1}"#;
    let event = post(&world, "/in", &[], body.as_bytes().to_vec()).await.event();
    assert_eq!(world.settled(&event).await[0]["state"], "succeeded");
    let sent = world.sink.requests();
    let sent = sent[0].body.clone();
    assert_eq!(
        sent,
        format!(
            r#"{{"whole":9007199254740993,"computed":9007199254740993,"text":"n=18446744073709551615","all":{body}}}"#
        )
    );
}
