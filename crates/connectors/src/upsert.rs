//! Look first, create, update: one upsert as several requests, at a destination that makes a second record of a second create.
//!
//! A call looks for the record unless its id is known, creates it if there is none, and updates it otherwise. Only a create whose
//! answer is lost is unsure: a look changes nothing, and an update may be repeated. The read-back of such a create is the look
//! again; a record that is found gets its update then, since the call may have ended before it.

use serde_json::{Value, json};
use sluice_domain::outcome::{Failure, FailureClass, Outcome, Readback};

/// The requests of one upsert.
pub(crate) trait UpsertRequests {
    /// Id of the record; `None` if there is none.
    async fn find(&self) -> Result<Option<Value>, Outcome>;

    /// Id of the new record.
    async fn create(&self) -> Result<Value, Outcome>;

    /// Leaves the record alone if no update is configured. `false` if there is no such record any more.
    async fn update(&self, id: &Value) -> Result<bool, Outcome>;
}

/// One attempt. `remembered` is the id that an earlier effect of this identity returned.
pub(crate) async fn call(requests: &impl UpsertRequests, identity: &str, remembered: Option<&Value>) -> Outcome {
    if let Some(id) = remembered {
        match update(requests, id).await {
            Ok(true) => return done(id, identity, Some(false)),
            Ok(false) => {}
            Err(outcome) => return outcome,
        }
    }
    match find(requests).await {
        Ok(Some(id)) => match update(requests, &id).await {
            Ok(true) => done(&id, identity, Some(false)),
            Ok(false) => Outcome::Retry { failure: vanished(), after: None },
            Err(outcome) => outcome,
        },
        Ok(None) => match requests.create().await {
            Ok(id) => done(&id, identity, Some(true)),
            Err(outcome) => outcome,
        },
        Err(outcome) => outcome,
    }
}

/// Looks whether a create of unknown outcome was applied, and finishes the upsert if so.
pub(crate) async fn read_back(requests: &impl UpsertRequests, identity: &str) -> Readback {
    let id = match find(requests).await {
        Ok(Some(id)) => id,
        Ok(None) => return Readback::Absent,
        Err(outcome) => return unreadable(outcome),
    };
    match update(requests, &id).await {
        Ok(true) => match done(&id, identity, None) {
            Outcome::Done { result } => Readback::Present(result),
            outcome => unreadable(outcome),
        },
        Ok(false) => Readback::Absent,
        Err(outcome) => unreadable(outcome),
    }
}

/// Id that can be remembered and sent: text or a number.
pub(crate) fn usable_id(id: Option<&Value>) -> Option<Value> {
    match id? {
        Value::String(text) if text.trim().is_empty() => None,
        id @ (Value::String(_) | Value::Number(_)) => Some(id.clone()),
        _ => None,
    }
}

/// The event lacks the identity.
pub(crate) fn no_identity() -> Failure {
    Failure::new(
        FailureClass::Identity,
        "no-identity",
        "The identity of the record has no value: the event lacks it. Nothing was sent.",
    )
}

/// Several records have one identity: none of them is the right one.
pub(crate) fn several(count: usize) -> Outcome {
    let message = format!(
        "The look found {count} records of this identity, so that none can be chosen; nothing was written. Merge them at the destination, then replay the job."
    );
    Outcome::Reject { failure: Failure::new(FailureClass::Permanent, "several-records", message) }
}

async fn find(requests: &impl UpsertRequests) -> Result<Option<Value>, Outcome> {
    requests.find().await.map_err(nothing_written)
}

async fn update(requests: &impl UpsertRequests, id: &Value) -> Result<bool, Outcome> {
    requests.update(id).await.map_err(nothing_written)
}

/// A look and an update may be repeated: their unknown outcome is a failure like any other.
fn nothing_written(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Unsure { failure } => Outcome::Retry { failure, after: None },
        other => other,
    }
}

fn done(id: &Value, identity: &str, created: Option<bool>) -> Outcome {
    let mut result = json!({ "id": id, "identity": identity });
    if let Some(created) = created {
        result["created"] = created.into();
    }
    Outcome::Done { result }
}

fn vanished() -> Failure {
    Failure::new(FailureClass::Conflict, "record-gone", "The record was found, and was gone when it was updated.")
}

fn unreadable(outcome: Outcome) -> Readback {
    let unknown = || Failure::new(FailureClass::Retryable, "unreadable", "The record cannot be looked up.");
    Readback::Unreadable(outcome.failure().cloned().unwrap_or_else(unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Answers in their order, and the requests that were made.
    struct Script {
        find: Result<Option<Value>, Outcome>,
        create: Result<Value, Outcome>,
        update: RefCell<Vec<Result<bool, Outcome>>>,
        made: RefCell<Vec<String>>,
    }

    impl Script {
        fn new(find: Result<Option<Value>, Outcome>, create: Result<Value, Outcome>) -> Script {
            Script { find, create, update: RefCell::default(), made: RefCell::default() }
        }

        fn updates(self, answers: Vec<Result<bool, Outcome>>) -> Script {
            *self.update.borrow_mut() = answers;
            self
        }

        fn made(&self) -> String {
            self.made.borrow().join(" ")
        }
    }

    impl UpsertRequests for Script {
        async fn find(&self) -> Result<Option<Value>, Outcome> {
            self.made.borrow_mut().push("find".into());
            self.find.clone()
        }

        async fn create(&self) -> Result<Value, Outcome> {
            self.made.borrow_mut().push("create".into());
            self.create.clone()
        }

        async fn update(&self, id: &Value) -> Result<bool, Outcome> {
            self.made.borrow_mut().push(format!("update:{id}"));
            if self.update.borrow().is_empty() { Ok(true) } else { self.update.borrow_mut().remove(0) }
        }
    }

    fn lost() -> Outcome {
        Outcome::Unsure { failure: Failure::new(FailureClass::Retryable, "timeout", "no answer") }
    }

    #[tokio::test]
    async fn a_record_is_created_only_if_the_look_finds_none() {
        let absent = Script::new(Ok(None), Ok(json!(7)));
        let outcome = call(&absent, "a", None).await;
        assert_eq!(outcome, Outcome::Done { result: json!({"id": 7, "identity": "a", "created": true}) });
        assert_eq!(absent.made(), "find create");
        let present = Script::new(Ok(Some(json!(7))), Ok(json!(8)));
        let outcome = call(&present, "a", None).await;
        assert_eq!(outcome, Outcome::Done { result: json!({"id": 7, "identity": "a", "created": false}) });
        assert_eq!(present.made(), "find update:7");
    }

    #[tokio::test]
    async fn a_remembered_record_is_not_looked_for_unless_it_is_gone() {
        let known = Script::new(Ok(None), Ok(json!(8)));
        assert!(matches!(call(&known, "a", Some(&json!(7))).await, Outcome::Done { .. }));
        assert_eq!(known.made(), "update:7");
        let gone = Script::new(Ok(None), Ok(json!(8))).updates(vec![Ok(false)]);
        let outcome = call(&gone, "a", Some(&json!(7))).await;
        assert_eq!(outcome, Outcome::Done { result: json!({"id": 8, "identity": "a", "created": true}) });
        assert_eq!(gone.made(), "update:7 find create");
    }

    #[tokio::test]
    async fn only_a_lost_create_is_unsure() {
        let outcome = call(&Script::new(Ok(None), Err(lost())), "a", None).await;
        assert!(matches!(outcome, Outcome::Unsure { .. }));
        let outcome = call(&Script::new(Err(lost()), Ok(json!(7))), "a", None).await;
        assert!(matches!(outcome, Outcome::Retry { .. }));
        let update = Script::new(Ok(Some(json!(7))), Ok(json!(8))).updates(vec![Err(lost())]);
        assert!(matches!(call(&update, "a", None).await, Outcome::Retry { .. }));
    }

    #[tokio::test]
    async fn a_read_back_finishes_the_upsert_and_never_creates() {
        let absent = Script::new(Ok(None), Ok(json!(7)));
        assert_eq!(read_back(&absent, "a").await, Readback::Absent);
        assert_eq!(absent.made(), "find");
        let present = Script::new(Ok(Some(json!(7))), Ok(json!(8)));
        assert_eq!(read_back(&present, "a").await, Readback::Present(json!({"id": 7, "identity": "a"})));
        assert_eq!(present.made(), "find update:7");
        let unwritten = Script::new(Ok(Some(json!(7))), Ok(json!(8))).updates(vec![Err(lost())]);
        assert!(matches!(read_back(&unwritten, "a").await, Readback::Unreadable(_)));
    }

    #[test]
    fn an_id_is_text_or_a_number() {
        assert_eq!(usable_id(Some(&json!(0))), Some(json!(0)));
        for id in [json!(null), json!(""), json!(" "), json!([1]), json!({}), json!(true)] {
            assert_eq!(usable_id(Some(&id)), None, "{id}");
        }
    }
}
