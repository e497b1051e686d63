use std::io::Write;

use serde_json::json;

use super::*;

const CSV: FileFormat = FileFormat::Csv { delimiter: b',' };

fn open(format: FileFormat, content: &[u8]) -> Result<ImportFile, String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    let rules = RowRules { format, flow: "leads".to_owned(), time_field: None, headers: vec![] };
    // The open file outlives its name.
    ImportFile::open(file.path(), rules).map_err(|error| error.message)
}

fn payloads(source: &mut ImportFile) -> Vec<Value> {
    source.rows.clone().into_iter().map(|place| source.read(place).unwrap().payload).collect()
}

fn rejected(source: &ImportFile) -> Vec<(u64, Option<&str>, &str)> {
    source.rejects.iter().map(|reject| (reject.line, reject.column.as_deref(), reject.code.as_str())).collect()
}

#[test]
fn lines_are_read_with_their_numbers() {
    let content = b"\xef\xbb\xbf{\"id\":1}\r\n\r\n{\"id\":2\n[1\x80]\n7\n{\"a\":1,\"a\":2}\n{\"id\":3}";
    let mut source = open(FileFormat::Ndjson, content).unwrap();
    assert_eq!(payloads(&mut source), [json!({"id": 1}), json!({"id": 3})]);
    assert_eq!(
        rejected(&source),
        [
            (3, Some("7"), "json-invalid"),
            (4, Some("3"), "utf8-invalid"),
            (5, None, "json-not-an-object"),
            (6, None, "json-duplicate-key"),
        ]
    );
}

#[test]
fn rows_are_ordered_by_time_whatever_their_lines() {
    let content = "{\"id\":1,\"occurred_at\":30}\n{\"id\":2,\"occurred_at\":10}\n{\"id\":3,\"occurred_at\":20}\n";
    let mut source = open(FileFormat::Ndjson, content.as_bytes()).unwrap();
    let ids: Vec<Value> = payloads(&mut source).into_iter().map(|payload| payload["id"].clone()).collect();
    assert_eq!(ids, [json!(2), json!(3), json!(1)]);
}

#[test]
fn equal_rows_are_numbered() {
    let source = open(FileFormat::Ndjson, b"{\"a\":1,\"b\":2}\n{\"c\":1}\n{\"b\":2,\"a\":1}\n").unwrap();
    let numbers: Vec<u32> = source.rows.iter().map(|row| row.occurrence).collect();
    assert_eq!(numbers, [1, 1, 2]);
}

#[test]
fn a_table_may_have_quoted_line_breaks_and_a_byte_order_mark() {
    let content = b"\xef\xbb\xbfid,note\r\n1,\"a\r\nb, \"\"c\"\"\"\r\n\r\n2,\n3\n4,x,y\n5,\xff\n";
    let mut source = open(CSV, content).unwrap();
    assert_eq!(payloads(&mut source), [json!({"id": "1", "note": "a\r\nb, \"c\""}), json!({"id": "2", "note": ""})]);
    assert_eq!(
        rejected(&source),
        [(6, None, "row-ragged"), (7, None, "row-ragged"), (8, Some("note"), "utf8-invalid")]
    );
}

#[test]
fn a_header_that_comes_again_is_no_row() {
    let content = b"id,note\n1,a\n\xef\xbb\xbfid, note\n2,note\n";
    let mut source = open(CSV, content).unwrap();
    assert_eq!(payloads(&mut source), [json!({"id": "1", "note": "a"}), json!({"id": "2", "note": "note"})]);
    assert_eq!(rejected(&source), [(3, None, "header-repeated")]);
}

#[test]
fn a_row_that_has_changed_since_it_was_indexed_is_not_imported() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"id\":1}\n{\"id\":2}\n").unwrap();
    let rules = RowRules { format: FileFormat::Ndjson, flow: "leads".to_owned(), time_field: None, headers: vec![] };
    let mut source = ImportFile::open(file.path(), rules).unwrap();
    std::fs::write(file.path(), "{\"id\":2}\n{\"id\":3}\n").unwrap();
    let place = source.rows[1];
    let problem = source.read(place).unwrap_err().message;
    assert!(problem.contains("has changed while it was imported"), "{problem}");
}

#[test]
fn files_without_rows_and_unclear_headers_are_refused() {
    let message = |format, content: &[u8]| open(format, content).err().unwrap();
    assert!(message(FileFormat::Ndjson, b"").ends_with("has no rows; nothing was imported"));
    assert!(message(FileFormat::Ndjson, b"\n\r\n").ends_with("has no rows; nothing was imported"));
    assert!(message(CSV, b"").ends_with("is empty; nothing was imported"));
    assert!(message(CSV, b"id,note\n").ends_with("has no rows; nothing was imported"));
    assert!(message(CSV, b"id,note, id\n1,2,3\n").contains("columns 1 and 3 have the same name `id`"));
    assert!(message(CSV, b"id,,x\n1,2,3\n").contains("column 2 has no name"));
    assert!(message(CSV, b"id;note\n1;2\n").contains("use --delimiter"));
    assert!(open(FileFormat::Csv { delimiter: b';' }, b"id;note\n1;2\n").is_ok());
}

#[test]
fn a_quote_that_is_not_closed_does_not_swallow_a_large_file() {
    let mut content = b"id,note\n1,\"open\n".to_vec();
    for n in 0..1_500_000 {
        content.extend_from_slice(format!("{n},some note\n").as_bytes());
    }
    let message = open(CSV, &content).err().unwrap();
    assert!(message.contains("line 2") && message.contains("a quote is probably not closed"), "{message}");
}

#[test]
fn huge_rows_are_rejected_and_do_not_stop_the_rest() {
    let huge = "x".repeat(ROW_BYTES_MAX + 1);
    let source = open(FileFormat::Ndjson, format!("{{\"a\":\"{huge}\"}}\n{{\"id\":1}}\n").as_bytes()).unwrap();
    assert_eq!((source.rows.len(), rejected(&source)), (1, vec![(1, None, "row-too-long")]));
    let source = open(CSV, format!("a\n{huge}\n1\n").as_bytes()).unwrap();
    assert_eq!((source.rows.len(), rejected(&source)), (1, vec![(2, None, "row-too-long")]));
}

#[test]
fn the_digest_is_that_of_the_content() {
    let digest = |content: &str| open(FileFormat::Ndjson, content.as_bytes()).unwrap().digest;
    assert_eq!(digest("{\"a\":1}\n"), digest("{\"a\":1}\n"));
    assert_ne!(digest("{\"a\":1}\n"), digest("{\"a\":1}"));
}
