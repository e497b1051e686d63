//! A job that takes back what it did, because a later step has failed for good.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outcome::Failure;

/// Why a job is being undone, and how far. It lies in the job's result until the job is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Undoing {
    /// What the job died of.
    pub failure: Failure,
    /// The steps whose effects were taken back.
    #[serde(default)]
    pub undone: Vec<String>,
    /// The steps whose effects could not be, and why.
    #[serde(default)]
    pub not_undone: Vec<NotUndone>,
}

/// A step whose effect could not be taken back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NotUndone {
    pub step: String,
    pub failure: Failure,
}

impl Undoing {
    /// Nothing is undone yet.
    pub(crate) fn new(failure: Failure) -> Undoing {
        Undoing { failure, undone: vec![], not_undone: vec![] }
    }

    /// As it was kept.
    pub(crate) fn read(result: Option<&Value>) -> Option<Undoing> {
        serde_json::from_value(result?.clone()).ok()
    }

    /// As it is kept.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("plain data has a JSON form")
    }

    /// What the job died of, and what became of its effects.
    pub(crate) fn told(&self) -> Failure {
        let mut message = self.failure.message.clone();
        if !self.undone.is_empty() {
            message.push_str(&format!("; undone: {}", self.undone.join(", ")));
        }
        for not in &self.not_undone {
            message.push_str(&format!("; NOT undone: {} ({}: {})", not.step, not.failure.code, not.failure.message));
        }
        Failure { message, ..self.failure.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::FailureClass;

    #[test]
    fn it_is_read_back_and_tells_what_is_left() {
        let failure = |code: &str| Failure::new(FailureClass::Permanent, code, "no");
        let mut undoing = Undoing::new(failure("refused"));
        undoing.undone.push("charge".into());
        undoing.not_undone.push(NotUndone { step: "reserve".into(), failure: failure("gone") });
        assert_eq!(Undoing::read(Some(&undoing.to_value())), Some(undoing.clone()));
        let told = undoing.told();
        assert_eq!((told.code.as_str(), told.class), ("refused", FailureClass::Permanent));
        assert!(told.message.contains("undone: charge") && told.message.contains("NOT undone: reserve (gone: no)"));
        assert_eq!(Undoing::read(Some(&serde_json::json!({"id": 7}))), None);
    }
}
