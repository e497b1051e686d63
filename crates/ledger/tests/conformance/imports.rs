//! Imports: rows and the place behind them are one commit.

use sluice_domain::import::{ImportCounts, ImportId, ImportState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_ledger::{CancelImport, ImportRecord, ImportStep, NewEvent, NewImport, Page, Quarantine};

use crate::driver::{Driver, Fixture, open};
use crate::fixtures::{START, event};

fn id() -> ImportId {
    ImportId::new("leads", "abc", None)
}

fn new(id: ImportId) -> NewImport {
    let (flow, file) = ("leads".to_owned(), "a.ndjson".to_owned());
    NewImport { id, flow, file, rows: 5, actor: "ann".to_owned(), reason: "history".to_owned(), at: START }
}

fn step(after: u64, until: u64) -> ImportStep {
    ImportStep { id: id(), after, until, refused: 0, is_last: false, at: START }
}

impl<D: Driver> Fixture<D> {
    async fn rows(&self, keys: &[&str], step: ImportStep) -> Option<usize> {
        let events: Vec<NewEvent> = keys.iter().map(|key| event(key)).collect();
        self.ledger.accept_rows(events, step).await.unwrap().map(|accepted| accepted.len())
    }

    async fn import(&self) -> ImportRecord {
        self.ledger.import_record(id()).await.unwrap().unwrap()
    }

    async fn audited(&self) -> Vec<String> {
        let page = Page { after: None, limit: 100 };
        let trail = self.ledger.audit_trail(page).await.unwrap();
        trail.iter().rev().filter(|entry| entry.object == id().to_string()).map(|entry| entry.action.clone()).collect()
    }
}

pub(crate) async fn rows_and_the_place_behind_them_are_one_commit<D: Driver>() {
    let fixture = open::<D>();
    fixture.ledger.start_import(new(id())).await.unwrap();
    assert_eq!(fixture.rows(&["a", "b"], step(0, 3)).await, Some(2));
    assert_eq!(fixture.rows(&["a", "b"], step(0, 3)).await, None, "the rows were taken before");
    assert_eq!(fixture.rows(&["c"], step(4, 5)).await, None, "a row would be left out");
    let fixture = fixture.reopen().await;
    let again = fixture.ledger.start_import(new(id())).await.unwrap();
    assert_eq!((again.position, again.counts.accepted, again.state), (3, 2, ImportState::Running));
    let mut flawed = event("d");
    flawed.quarantine = Some(Quarantine::new(Failure::new(FailureClass::Mapping, "field-missing", "gone")));
    let last = ImportStep { refused: 1, is_last: true, ..step(3, 6) };
    let accepted = fixture.ledger.accept_rows(vec![event("a"), flawed], last).await.unwrap();
    assert_eq!(accepted.map(|accepted| accepted.len()), Some(2));
    let ended = fixture.import().await;
    let counts = ImportCounts { accepted: 2, duplicates: 1, quarantined: 1, refused: 1 };
    assert_eq!((ended.state, ended.position, ended.counts), (ImportState::Done, 6, counts));
    assert_eq!(fixture.rows(&["e"], step(6, 7)).await, None, "it is done");
    assert_eq!(fixture.ledger.start_import(new(id())).await.unwrap().state, ImportState::Done);
    assert_eq!(fixture.audited().await, ["import", "import ended"]);
}

pub(crate) async fn a_batch_without_events_moves_the_import_on<D: Driver>() {
    let fixture = open::<D>();
    fixture.ledger.start_import(new(id())).await.unwrap();
    assert_eq!(fixture.rows(&[], ImportStep { refused: 2, ..step(0, 2) }).await, Some(0));
    assert_eq!((fixture.import().await.position, fixture.import().await.counts.refused), (2, 2));
    assert_eq!(fixture.rows(&[], ImportStep { refused: 1, ..step(0, 1) }).await, None);
}

pub(crate) async fn a_cancelled_import_takes_no_rows_until_it_is_started_again<D: Driver>() {
    let fixture = open::<D>();
    let cancel = |id| CancelImport { id, actor: "ann".to_owned(), reason: "wrong".to_owned(), at: START };
    assert_eq!(fixture.ledger.cancel_import(cancel(id())).await.unwrap(), None);
    fixture.ledger.start_import(new(id())).await.unwrap();
    let cancelled = fixture.ledger.cancel_import(cancel(id())).await.unwrap().unwrap();
    assert_eq!(cancelled.state, ImportState::Cancelled);
    assert_eq!(fixture.rows(&["a"], step(0, 1)).await, None);
    assert_eq!(fixture.ledger.start_import(new(id())).await.unwrap().state, ImportState::Running);
    assert_eq!(fixture.rows(&["a"], step(0, 1)).await, Some(1));
    assert_eq!(fixture.audited().await, ["import", "cancel import", "resume import"]);
}

pub(crate) async fn a_row_that_is_known_says_nothing_about_how_late_its_source_repeats_itself<D: Driver>() {
    let fixture = open::<D>();
    fixture.accept_event(event("a")).await;
    fixture.ledger.start_import(new(id())).await.unwrap();
    let row = NewEvent { imported: true, ..event("a") };
    let accepted = fixture.ledger.accept_rows(vec![row], step(0, 1)).await.unwrap();
    assert_eq!((accepted.map(|rows| rows.len()), fixture.import().await.counts.duplicates), (Some(1), 1));
    assert_eq!(fixture.ledger.duplicate_stats("website".into()).await.unwrap().duplicates, 0);
}

pub(crate) async fn imports_are_listed_newest_first<D: Driver>() {
    let fixture = open::<D>();
    let ids: Vec<ImportId> = (0..3).map(|n| ImportId::new("leads", &n.to_string(), None)).collect();
    for id in &ids {
        fixture.ledger.start_import(new(*id)).await.unwrap();
    }
    let page = fixture.ledger.imports(Page { after: None, limit: 2 }).await.unwrap();
    assert_eq!(page.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[2], ids[1]]);
    let rest = fixture.ledger.imports(Page { after: Some(page[1].n), limit: 2 }).await.unwrap();
    assert_eq!(rest.iter().map(|record| record.id).collect::<Vec<_>>(), [ids[0]]);
    assert_eq!(fixture.ledger.import_record(id()).await.unwrap(), None);
}
