//! The diagram in `docs/lifecycle.md` shows exactly the transitions that the code allows.

use std::collections::{BTreeMap, BTreeSet};

use sluice_domain::job::JobState;

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

type Edges = BTreeSet<(&'static str, &'static str)>;

/// Lines of the only diagram on the page.
fn diagram() -> Vec<&'static str> {
    let mut blocks = PAGE.split("```mermaid\n").skip(1);
    let block = blocks.next().expect("the page has a diagram");
    assert!(blocks.next().is_none(), "the page must have a single diagram");
    let (block, _) = block.split_once("```").expect("the diagram ends");
    block.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// A state, or all states of a group.
fn members<'a>(word: &'a str, groups: &'a BTreeMap<&'a str, Vec<&'a str>>) -> Vec<&'static str> {
    let names = groups.get(word).cloned().unwrap_or_else(|| vec![word]);
    names
        .iter()
        .map(|name| JobState::parse(name).unwrap_or_else(|| panic!("`{name}` is not a state")).as_str())
        .collect()
}

/// Edges of the diagram: an edge from or to a group means one from or to each of its members.
fn drawn() -> (Edges, BTreeSet<&'static str>) {
    let lines = diagram();
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut group = None;
    let mut arrows = Vec::new();
    for line in lines {
        if let Some(rest) = line.strip_prefix("subgraph ") {
            group = rest.split_whitespace().next();
        } else if line == "end" {
            group = None;
        } else if let Some((from, to)) = line.split_once("-->") {
            arrows.push((from.trim(), to.trim()));
        } else if let Some(group) = group {
            groups.entry(group).or_default().push(line);
        } else {
            assert_eq!(line, "flowchart LR", "unexpected line");
        }
    }
    let mut edges = Edges::new();
    for (from, to) in arrows {
        for to in to.split('&').map(str::trim).flat_map(|to| members(to, &groups)) {
            for from in from.split('&').map(str::trim).flat_map(|from| members(from, &groups)) {
                assert!(edges.insert((from, to)), "{from} --> {to} is drawn twice");
            }
        }
    }
    let states = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
    (edges, states)
}

fn allowed() -> Edges {
    let pairs = JobState::ALL.into_iter().flat_map(|from| JobState::ALL.into_iter().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from.may_become(*to)).map(|(from, to)| (from.as_str(), to.as_str())).collect()
}

#[test]
fn diagram_shows_exactly_the_allowed_transitions() {
    let (drawn, _) = drawn();
    let allowed = allowed();
    let only_drawn: Vec<_> = drawn.difference(&allowed).collect();
    let only_allowed: Vec<_> = allowed.difference(&drawn).collect();
    assert!(
        only_drawn.is_empty() && only_allowed.is_empty(),
        "drawn, not allowed: {only_drawn:?}\nallowed, not drawn: {only_allowed:?}"
    );
}

#[test]
fn every_state_is_in_the_diagram_and_in_the_table() {
    let (_, drawn) = drawn();
    for state in JobState::ALL {
        assert!(drawn.contains(state.as_str()), "`{state}` is not in the diagram");
        assert!(PAGE.contains(&format!("| `{state}` |")), "`{state}` has no row in the table");
    }
}
