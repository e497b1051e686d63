//! Splits a body into its events.

use serde_json::Value;

use super::PayloadProblem;

/// Maximum number of events in a request: all of them are written in one commit.
pub const EVENTS_MAX: usize = 2_000;

/// Extracts the events at a path of lists, each inside the items of the one before. With an empty path the body itself is
/// the list; an object is then a single event, since some senders use both forms.
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
    fn nested_lists_are_split_into_events() {
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
