//! The states of jobs as a map: what follows what, with counts, or with the path of one job.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;

use crate::operate::views::JobDetail;

const BOX_WIDTH: i64 = 148;
const BOX_HEIGHT: i64 = 44;

/// Name and position of each state.
const PLACES: [(&str, i64, i64); 9] = [
    ("queued", 4, 76),
    ("retrying", 196, 8),
    ("running", 196, 76),
    ("waiting", 196, 144),
    ("succeeded", 420, 8),
    ("noop", 420, 64),
    ("dead", 420, 120),
    ("unknown", 420, 176),
    ("dropped", 612, 120),
];

/// From, to, and the path between them.
const EDGES: [(&str, &str, &str); 11] = [
    ("queued", "running", "M152 98H190"),
    ("running", "retrying", "M246 76V58"),
    ("retrying", "running", "M276 52V70"),
    ("running", "waiting", "M246 120V138"),
    ("waiting", "running", "M276 144V126"),
    ("running", "succeeded", "M344 98H382V30H414"),
    ("running", "noop", "M344 98H382V86H414"),
    ("running", "dead", "M344 98H382V142H414"),
    ("running", "unknown", "M344 98H382V198H414"),
    ("dead", "dropped", "M568 142H606"),
    ("dead", "queued", "M484 164V170H400V232H68V126"),
];

#[derive(Clone, Debug, Template)]
#[template(path = "console/state_map.svg", escape = "html")]
pub(super) struct StateMap {
    summary: String,
    boxes: Vec<StateBox>,
    edges: Vec<Edge>,
    /// The map shows the path of one job, not counts.
    pub is_path: bool,
}

#[derive(Clone, Debug)]
struct StateBox {
    state: &'static str,
    x: i64,
    y: i64,
    count: u64,
    is_lit: bool,
    is_current: bool,
}

#[derive(Clone, Debug)]
struct Edge {
    path: &'static str,
    is_lit: bool,
}

impl StateBox {
    fn text_x(&self) -> i64 {
        self.x + 30
    }

    fn text_y(&self) -> i64 {
        self.y + BOX_HEIGHT / 2 + 5
    }

    fn icon_x(&self) -> i64 {
        self.x + 9
    }

    fn icon_y(&self) -> i64 {
        self.y + BOX_HEIGHT / 2 - 8
    }

    fn count_x(&self) -> i64 {
        self.x + BOX_WIDTH - 10
    }

    fn href(&self) -> String {
        list_of(self.state)
    }
}

/// Page with the jobs of a state.
pub(super) fn list_of(state: &str) -> String {
    match state {
        "dead" => "/dead-letters".to_owned(),
        "unknown" => "/unknown".to_owned(),
        state => format!("/jobs?state={state}"),
    }
}

impl StateMap {
    /// Jobs by state.
    pub(super) fn counts(jobs: &BTreeMap<String, u64>) -> StateMap {
        let count = |state: &str| jobs.get(state).copied().unwrap_or_default();
        let parts: Vec<String> = PLACES.iter().map(|(state, ..)| format!("{} {state}", count(state))).collect();
        let state_box = |(state, x, y): (&'static str, i64, i64)| {
            let count = count(state);
            StateBox { state, x, y, count, is_lit: count > 0, is_current: false }
        };
        StateMap {
            summary: format!("Jobs by state: {}", parts.join(", ")),
            boxes: PLACES.map(state_box).to_vec(),
            edges: EDGES.map(|(.., path)| Edge { path, is_lit: false }).to_vec(),
            is_path: false,
        }
    }

    /// The way of one job through the states, as far as its attempts tell.
    pub(super) fn path(detail: &JobDetail) -> StateMap {
        let job = &detail.job;
        let outcomes: BTreeSet<&str> = detail.attempts_made.iter().map(|attempt| attempt.outcome.as_str()).collect();
        let mut passed: BTreeSet<&str> = BTreeSet::from(["queued", job.state.as_str()]);
        if !outcomes.is_empty() || job.state != "queued" {
            passed.insert("running");
        }
        if outcomes.contains("retry") {
            passed.insert("retrying");
        }
        if outcomes.contains("wait") {
            passed.insert("waiting");
        }
        let is_replayed = job.replays > 0;
        if is_replayed || job.state == "dropped" {
            passed.insert("dead");
        }
        let state_box = |(state, x, y): (&'static str, i64, i64)| StateBox {
            state,
            x,
            y,
            count: 0,
            is_lit: passed.contains(state),
            is_current: state == job.state,
        };
        let edge = |(from, to, path): (&str, &str, &'static str)| {
            let is_way = passed.contains(from) && passed.contains(to);
            Edge { path, is_lit: is_way && ((from, to) != ("dead", "queued") || is_replayed) }
        };
        let replayed = if is_replayed { format!(", replayed {} times", job.replays) } else { String::new() };
        StateMap {
            summary: format!("The job is {}{replayed}; it was {}", job.state, words(&passed)),
            boxes: PLACES.map(state_box).to_vec(),
            edges: EDGES.map(edge).to_vec(),
            is_path: true,
        }
    }
}

fn words(states: &BTreeSet<&str>) -> String {
    let known = PLACES.iter().map(|(state, ..)| *state).filter(|state| states.contains(state));
    known.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_domain::job::JobState;

    #[test]
    fn map_has_every_state_and_its_edges_join_states() {
        let known: BTreeSet<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        let drawn: BTreeSet<&str> = PLACES.iter().map(|(state, ..)| *state).collect();
        assert_eq!(known, drawn);
        assert!(EDGES.iter().all(|(from, to, _)| drawn.contains(from) && drawn.contains(to)));
    }

    #[test]
    fn every_count_opens_its_list() {
        let map = StateMap::counts(&BTreeMap::from([("dead".to_owned(), 3), ("queued".to_owned(), 1)]));
        let html = map.render().unwrap();
        assert!(html.contains("href=\"/dead-letters\"") && html.contains("href=\"/jobs?state=queued\""), "{html}");
        assert!(html.contains("3 dead") && html.contains(">3</text>"), "{html}");
    }
}
