//! What a page consists of. Pages are data; the templates turn it into HTML and escape every value.

use askama::Template;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use super::assets;
use super::visit::Fields;
use crate::operate::views::{List, Status};

/// The pages of the navigation: path, name, letter after `g`.
pub const PAGES: [(&str, &str, &str); 20] = [
    ("/", "Overview", "o"),
    ("/events", "Events", "e"),
    ("/people", "People", "h"),
    ("/jobs", "Jobs", "j"),
    ("/dead-letters", "Dead letters", "d"),
    ("/unknown", "Unknown outcomes", "u"),
    ("/replays", "Replays", "r"),
    ("/approvals", "Approvals", "a"),
    ("/alerts", "Alerts", "l"),
    ("/sources", "Sources", "s"),
    ("/destinations", "Destinations", "t"),
    ("/workers", "Queues and workers", "w"),
    ("/responses", "Response clocks", "q"),
    ("/suppressions", "Suppressed", "y"),
    ("/balance", "Balance", "b"),
    ("/configuration", "Configuration", "c"),
    ("/audit", "Audit", "i"),
    ("/node", "Node", "n"),
    ("/users", "Users and tokens", "p"),
    ("/api", "API", "x"),
];

/// A page with its frame.
#[derive(Debug, Template)]
#[template(path = "console/page.html")]
pub(super) struct Page {
    pub title: String,
    pub frame: Frame,
    pub blocks: Vec<Block>,
}

/// What surrounds every page of a signed-in user.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub user: String,
    pub role: String,
    pub form_token: String,
    /// Path of the page, which is fetched again when something has changed.
    pub path: String,
    pub navigation: Vec<NavigationItem>,
    /// Name and address of each saved view.
    pub views: Vec<(String, String)>,
    pub banners: Vec<Banner>,
    pub version: String,
    pub style: &'static str,
    pub script: &'static str,
}

#[derive(Clone, Debug)]
pub(super) struct NavigationItem {
    pub href: &'static str,
    pub label: &'static str,
    /// Letter after `g`.
    pub key: &'static str,
    pub count: u64,
    pub is_current: bool,
}

/// Something that every page says.
#[derive(Clone, Debug)]
pub(super) struct Banner {
    pub text: String,
    pub href: String,
    /// Form that ends what it says.
    pub act: Option<Act>,
}

#[derive(Clone, Debug, Template)]
#[template(path = "console/block.html")]
pub(super) enum Block {
    Heading(String),
    Text(String),
    /// Name and value.
    Facts(Vec<(String, Cell)>),
    Table(Table),
    Tiles(Vec<TileGroup>),
    /// Label and preformatted text.
    Code(String, String),
    Filter(Filter),
    Act(Act),
    /// Several acts behind a summary.
    Fold(String, Vec<Act>),
    /// A block behind a summary.
    Folded(String, Box<Block>),
    Timeline(super::timeline::Timeline),
    /// Choice of the time that charts show: address, label, whether it is the current one.
    Windows(Vec<(String, &'static str, bool)>),
    Charts(Vec<super::chart::Chart>),
    States(super::state_map::StateMap),
    Gate(super::svg::GatePicture),
    /// Few numbers that say how the node does: label, value, explanation.
    Stars(Vec<(&'static str, String, &'static str)>),
    /// The same on the command line and over the API.
    Twin(String, String),
    Problem(String, String, String),
}

#[derive(Clone, Debug, Template)]
#[template(path = "console/cell.html")]
pub(super) enum Cell {
    Text(String),
    Code(String),
    /// Address and text.
    Link(String, String),
    /// Address and identifier.
    Id(String, String),
    State(String),
    /// State that gives colour and shape, and a word of its own.
    Verdict(&'static str, &'static str),
    /// RFC 3339 in UTC.
    Time(String),
    Number(u64),
    /// Number that opens its list.
    Count(String, u64),
    Gate(super::svg::Gate),
    /// Part and whole.
    Meter(u64, u64),
    Acts(Vec<Act>),
}

/// The next page of a table.
#[derive(Clone, Debug)]
pub(super) struct More {
    pub address: String,
    /// The time for this page was up: rows were searched back to this time.
    pub scanned_to: Option<Cell>,
}

impl More {
    /// Behind a page of a list: the same address with its cursor.
    pub(super) fn of<T>(list: &List<T>, path: &str, query: &Fields) -> Option<More> {
        let next = list.next.as_ref()?;
        Some(More {
            address: format!("{path}?{}", query.query_with("after", next)),
            scanned_to: list.scanned_to.clone().map(Cell::Time),
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub caption: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Row>,
    /// Said if there are no rows.
    pub empty: String,
    pub more: Option<More>,
    /// Acts on marked rows.
    pub bulk: Option<Bulk>,
}

impl Table {
    /// Whether the time for its search was up before it was full.
    pub(super) fn is_unfinished(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.scanned_to.is_some())
    }

    /// Heading of a column, by its place.
    pub(super) fn column(&self, place: &usize) -> &'static str {
        self.columns.get(*place).copied().unwrap_or_default()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// Value of its checkbox.
    pub mark: String,
    pub cells: Vec<Cell>,
}

/// Acts on marked rows, or on all that match.
#[derive(Clone, Debug)]
pub(super) struct Bulk {
    pub form_token: String,
    /// Sent with the form: the filter of the list.
    pub hidden: Vec<(String, String)>,
    /// Address and label; each opens a sheet.
    pub buttons: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(super) struct TileGroup {
    pub label: &'static str,
    pub tiles: Vec<Tile>,
}

#[derive(Clone, Debug)]
pub(super) struct Tile {
    pub state: String,
    pub count: u64,
    pub href: String,
}

#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub action: &'static str,
    pub fields: Vec<Field>,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub kind: FieldKind,
    pub value: String,
    pub hint: &'static str,
    pub required: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Text,
    Password,
    Check,
    /// The empty value is offered too.
    Choice(Vec<&'static str>),
}

impl Field {
    pub(super) fn text(name: &'static str, label: &'static str, value: &str, hint: &'static str) -> Field {
        Field { name, label, kind: FieldKind::Text, value: value.to_owned(), hint, required: false }
    }

    pub(super) fn choice(name: &'static str, label: &'static str, value: &str, words: Vec<&'static str>) -> Field {
        Field { name, label, kind: FieldKind::Choice(words), value: value.to_owned(), hint: "", required: false }
    }

    /// Reason for the audit trail.
    pub(super) fn reason() -> Field {
        Field { required: true, ..Field::text("reason", "Why", "", "recorded in the audit trail") }
    }

    pub(super) fn is_choice(&self) -> bool {
        matches!(self.kind, FieldKind::Choice(_))
    }

    pub(super) fn words(&self) -> &[&'static str] {
        match &self.kind {
            FieldKind::Choice(words) => words,
            _ => &[],
        }
    }

    pub(super) fn input_type(&self) -> &'static str {
        match self.kind {
            FieldKind::Password => "password",
            FieldKind::Check => "checkbox",
            _ => "text",
        }
    }

    pub(super) fn is_check(&self) -> bool {
        self.kind == FieldKind::Check
    }
}

/// A form that changes something.
#[derive(Clone, Debug, Template)]
#[template(path = "console/act.html")]
pub(super) struct Act {
    pub action: String,
    pub button: String,
    pub form_token: String,
    pub hidden: Vec<(String, String)>,
    pub fields: Vec<Field>,
    /// Cannot be undone.
    pub is_final: bool,
}

impl Act {
    pub(super) fn with(mut self, name: &str, value: impl Into<String>) -> Act {
        self.hidden.push((name.to_owned(), value.into()));
        self
    }

    pub(super) fn asking(mut self, field: Field) -> Act {
        self.fields.push(field);
        self
    }

    pub(super) fn that_is_final(self) -> Act {
        Act { is_final: true, ..self }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        rendered(&self, StatusCode::OK)
    }
}

/// A template as a response.
pub(super) fn rendered(template: &impl Template, status: StatusCode) -> Response {
    match template.render() {
        Ok(html) => (status, [(header::CACHE_CONTROL, "no-store")], Html(html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "page not rendered");
            (StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be rendered; see the log").into_response()
        }
    }
}

/// Who looks at a page, and at which.
#[derive(Clone, Debug)]
pub(super) struct Viewer {
    pub user: String,
    pub role: String,
    pub form_token: String,
    pub path: String,
    pub views: Vec<(String, String)>,
    /// Alerts that fire.
    pub alerts: u64,
}

impl Frame {
    pub(super) fn new(status: &Status, viewer: Viewer) -> Frame {
        let count = |state: &str| status.jobs.get(state).copied().unwrap_or_default();
        let path = viewer.path.as_str();
        let item = |&(href, label, key): &(&'static str, &'static str, &'static str)| NavigationItem {
            href,
            label,
            key,
            count: match href {
                "/dead-letters" => count("dead"),
                "/unknown" => count("unknown"),
                "/approvals" => status.approvals_pending,
                "/alerts" => viewer.alerts,
                "/node" => status.warnings.len() as u64,
                _ => 0,
            },
            is_current: if href == "/" { path == "/" } else { path == href || path.starts_with(&format!("{href}/")) },
        };
        let navigation = PAGES.iter().map(item).collect();
        let banners = banners(status, &viewer);
        let Viewer { user, role, form_token, path, views, .. } = viewer;
        Frame {
            user,
            role,
            form_token,
            navigation,
            views,
            banners,
            version: status.version.clone(),
            style: assets::style_path(),
            script: assets::script_path(),
            path,
        }
    }
}

/// What every page says, each with the form that ends it.
fn banners(status: &Status, viewer: &Viewer) -> Vec<Banner> {
    let act = |action: &str, button: &str, hidden: &[(&str, &str)]| Act {
        action: action.to_owned(),
        button: button.to_owned(),
        form_token: viewer.form_token.clone(),
        hidden: hidden.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        fields: vec![],
        is_final: false,
    };
    let next = viewer.path.as_str();
    let paused = status.paused.iter().map(|pause| Banner {
        text: format!("{} is paused by {}: {}", pause.target, pause.actor, pause.reason),
        href: pause_page(&pause.target).to_owned(),
        act: Some(act("/resume", "Resume", &[("target", &pause.target), ("next", next)])),
    });
    let safe = status.safe_modes.iter().map(|mode| {
        let worker = mode.worker.as_deref().unwrap_or_default();
        let hidden = [("worker", worker), ("on", "no"), ("next", next), ("reason", "ended in the console")];
        Banner {
            text: format!("safe mode of {}: {}", mode.worker.as_deref().unwrap_or("all workers"), mode.reason),
            href: "/workers".to_owned(),
            act: Some(act("/safe-mode", "End safe mode", &hidden)),
        }
    });
    paused.chain(safe).collect()
}

fn pause_page(target: &str) -> &'static str {
    match target.split(':').next() {
        Some("destination") => "/destinations",
        Some("source") => "/sources",
        Some("replays") => "/replays",
        _ => "/workers",
    }
}

/// Quotes a value for a shell.
pub(super) fn shell(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/' | '@' | ',');
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// Quotes a value for the query of an address.
pub(super) fn query_value(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_value_stays_text() {
        let hostile = "<script>alert(1)</script>\" onmouseover=x \u{202e}";
        for cell in [
            Cell::Text(hostile.into()),
            Cell::Code(hostile.into()),
            Cell::State(hostile.into()),
            Cell::Time(hostile.into()),
            Cell::Link("/events".into(), hostile.into()),
        ] {
            let html = cell.render().unwrap();
            assert!(!html.contains("<script") && !html.contains("\" onmouseover"), "{html}");
        }
    }

    #[test]
    fn table_that_was_not_searched_to_its_end_says_so() {
        let list = |next: Option<&str>, scanned_to: Option<&str>| List::<u8> {
            items: vec![],
            next: next.map(str::to_owned),
            scanned_to: scanned_to.map(str::to_owned),
        };
        let shown = |list: List<u8>| {
            let more = More::of(&list, "/jobs", &Fields::parse("code=NONE&after=job_9"));
            Block::Table(Table { empty: "No job matches.".into(), more, ..Table::default() }).render().unwrap()
        };
        let part = shown(list(Some("job_7"), Some("2026-11-18T02:14:00Z")));
        assert!(part.contains("Nothing found so far.") && !part.contains("No job matches."), "{part}");
        assert!(part.contains("Searched back to <time datetime=\"2026-11-18T02:14:00Z\">"), "{part}");
        assert!(part.contains("/jobs?code=NONE&#38;after=job_7"), "{part}");
        let whole = shown(list(None, None));
        assert!(whole.contains("No job matches.") && !whole.contains("rel=\"next\""), "{whole}");
    }

    #[test]
    fn command_of_a_hostile_value_is_one_argument() {
        assert_eq!(shell("crm"), "crm");
        assert_eq!(shell("a'; rm -rf /"), r"'a'\''; rm -rf /'");
        assert_eq!(query_value("a&b=c d"), "a%26b%3Dc%20d");
    }
}
