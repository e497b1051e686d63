//! One request, many events.

use serde_json::Value;

use super::PayloadProblem;

/// How many events one request may carry: all of them go into one commit.
pub const EVENTS_MAX: usize = 2_000;

/// The events of a body whose lists stand at these names, each within the items of the one before. Without a name the
/// body itself is the list; a body that is an object then is one event, since some senders use both forms.
pub fn split(body: Value, lists: &[String]) -> Result<Vec<Value>, PayloadProblem> {
    let mut level = vec![body];
    if lists.is_empty() {
        level = match level.pop() {
            Some(Value::Array(items)) => items,
            other => other.into_iter().collect(),
        };
    }
    for (depth, name) in lists.iter().enumerate() {
        let mut inner = Vec::new();
        for item in level {
            match item {
                Value::Object(mut members) => match members.remove(name) {
                    Some(Value::Array(items)) => inner.extend(items),
                    _ => return Err(PayloadProblem::NoEvents(lists[..=depth].join("[]."))),
                },
                _ => return Err(PayloadProblem::NoEvents(lists[..=depth].join("[]."))),
            }
            if inner.len() > EVENTS_MAX {
                return Err(PayloadProblem::TooManyEvents);
            }
        }
        level = inner;
    }
    if level.len() > EVENTS_MAX {
        return Err(PayloadProblem::TooManyEvents);
    }
    Ok(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn events_are_found_in_lists_within_lists() {
        assert_eq!(split(json!([1, {"a": 2}]), &[]).unwrap(), vec![json!(1), json!({"a": 2})]);
        assert_eq!(split(json!({"a": 2}), &[]).unwrap(), vec![json!({"a": 2})]);
        assert_eq!(split(json!([]), &[]).unwrap(), Vec::<Value>::new());
        let meta = json!({"entry": [{"changes": [{"n": 1}, {"n": 2}]}, {"changes": [{"n": 3}]}]});
        assert_eq!(
            split(meta, &names(&["entry", "changes"])).unwrap(),
            [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})]
        );
        let none = split(json!({"entry": [{}]}), &names(&["entry", "changes"])).unwrap_err();
        assert_eq!(none.to_string(), "the body has no list of events at entry[].changes");
        assert_eq!(split(json!(vec![0; EVENTS_MAX + 1]), &[]), Err(PayloadProblem::TooManyEvents));
    }
}
