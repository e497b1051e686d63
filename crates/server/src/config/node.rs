//! YAML (and so JSON) text becomes a tree in which everything knows where it stands.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::Value;

use super::bare;

/// The largest file that is read.
pub const FILE_BYTES_MAX: usize = 1024 * 1024;
/// How deep lists and maps may stand in one another.
pub const DEPTH_MAX: usize = 48;
/// How many nodes a file may have once its aliases are written out.
pub const NODES_MAX: usize = 100_000;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// The line of the first character, from 1.
    pub line: usize,
    /// The column of the first character, in characters, from 1.
    pub column: usize,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where.
    pub span: Span,
    /// What.
    pub kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Text, or something that reads as a number, a flag or nothing when it has no quotes.
    Scalar(Scalar),
    /// A list.
    List(Vec<Node>),
    /// Names to values, in the order written.
    Map(Vec<Entry>),
}

/// A scalar as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// Its text, without quotes.
    pub text: String,
    /// Whether it had quotes or was a block: then it is text, whatever it looks like.
    pub quoted: bool,
}

/// One line of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// Why a text is not a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Where.
    pub span: Span,
    /// Stable.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: Option<String>,
}

impl Node {
    /// The scalar that this is.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.kind {
            Kind::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// The text of a scalar that is not nothing.
    pub fn text(&self) -> Option<&str> {
        self.scalar().filter(|scalar| !scalar.is_null()).map(|scalar| scalar.text.as_str())
    }

    /// The entries of a map.
    pub fn entries(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// Whether nothing stands here.
    pub fn is_null(&self) -> bool {
        self.scalar().is_some_and(Scalar::is_null)
    }

    /// The value of this name in a map.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The value as JSON.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(scalar) => scalar.to_value(),
            Kind::List(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Map(entries) => {
                Value::Object(entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect())
            }
        }
    }

    /// What stands here, in words.
    pub fn describe(&self) -> &'static str {
        match &self.kind {
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
            Kind::Scalar(scalar) => match scalar.to_value() {
                Value::Null => "nothing",
                Value::Bool(_) => "true or false",
                Value::Number(_) => "a number",
                _ => "text",
            },
        }
    }
}

impl Scalar {
    /// Whether it stands for nothing.
    pub fn is_null(&self) -> bool {
        !self.quoted && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }

    /// What it means by the core schema of YAML 1.2: `yes`, `on` and `0777` are text.
    pub fn to_value(&self) -> Value {
        let text = self.text.as_str();
        if self.quoted {
            return Value::String(text.to_owned());
        }
        if self.is_null() {
            return Value::Null;
        }
        match text {
            "true" | "True" | "TRUE" => return Value::Bool(true),
            "false" | "False" | "FALSE" => return Value::Bool(false),
            _ => {}
        }
        let number = text.strip_prefix('+').unwrap_or(text);
        let digits = number.strip_prefix('-').unwrap_or(number);
        let octal_like = digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.");
        if digits.starts_with(|c: char| c.is_ascii_digit()) && !octal_like
            && let Ok(Value::Number(number)) = serde_json::from_str(number)
        {
            return Value::Number(number);
        }
        Value::String(text.to_owned())
    }
}

/// Where every character of a text stands.
struct Positions {
    starts: Vec<usize>,
    lines: Vec<usize>,
    bytes: usize,
}

impl Positions {
    fn new(text: &str) -> Positions {
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let mut lines = vec![0];
        lines.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Positions { starts, lines, bytes: text.len() }
    }

    fn byte(&self, character: usize) -> usize {
        self.starts.get(character).copied().unwrap_or(self.bytes)
    }

    fn span(&self, start: usize, end: usize) -> Span {
        let line = self.lines.partition_point(|begin| *begin <= start);
        let begin = self.lines.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let characters = |at: usize| self.starts.partition_point(|byte| *byte < at);
        Span { start, end: end.max(start), line, column: characters(start) - characters(begin) + 1 }
    }
}

/// Reads every document of a text. What could be read before a flaw is returned beside it.
pub fn parse(text: &str) -> (Vec<Node>, Vec<Flaw>) {
    let positions = Positions::new(text);
    let mut builder = Builder {
        text,
        positions,
        open: vec![],
        documents: vec![],
        anchors: HashMap::new(),
        nodes: 0,
        flaws: vec![],
    };
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes; {FILE_BYTES_MAX} are allowed", text.len());
        builder.flaw((0, 0), "file-too-large", message, None);
        return (vec![], builder.flaws);
    }
    if let Some(at) = bare::find_reserved(text) {
        let message = "a private-use character (U+F0020 to U+F007E) stands here".to_owned();
        builder.flaw((at, at + 4), "yaml-syntax", message, None);
        return (vec![], builder.flaws);
    }
    let hidden = bare::hide(text);
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(&hidden);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => {
                let (start, end) = (span.start.index(), span.end.index());
                let (start, end) = (builder.positions.byte(start), builder.positions.byte(end));
                if builder.event(event, start, end).is_err() {
                    break;
                }
            }
            Err(error) => {
                let at = builder.positions.byte(error.marker().index());
                builder.syntax(at, error.info());
                break;
            }
        }
    }
    let Builder { documents, flaws, .. } = builder;
    (documents, flaws)
}

/// A list or map that is not closed yet.
struct Open {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, key: Option<(String, Span)> },
}

struct Builder<'a> {
    text: &'a str,
    positions: Positions,
    open: Vec<Open>,
    documents: Vec<Node>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    flaws: Vec<Flaw>,
}

/// The rest of the file cannot be read.
struct Stop;

impl Builder<'_> {
    fn flaw(&mut self, (start, end): (usize, usize), code: &'static str, message: String, hint: Option<String>) {
        let span = self.positions.span(start, end);
        self.flaws.push(Flaw { span, code, message, hint });
    }

    /// The parser's own words, and what is most often behind them.
    fn syntax(&mut self, at: usize, info: &str) {
        let at = at.min(self.text.len());
        let begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[begin..].lines().next().unwrap_or("");
        let hint = if line.starts_with('\t') || line.trim_start_matches(' ').starts_with('\t') {
            Some("indent with spaces; YAML does not allow tabs there")
        } else if line.contains("{{") && !line.contains("}}") {
            Some("a {{ … }} without quotes must end on its own line")
        } else if line.contains("}}: ") || line.matches(": ").count() > 1 {
            Some("text that holds `: ` must be in quotes")
        } else {
            None
        };
        let end = at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        self.flaw((at, end), "yaml-syntax", format!("this is not YAML: {info}"), hint.map(str::to_owned));
    }

    fn event(&mut self, event: Event<'_>, start: usize, end: usize) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
            Event::DocumentStart(_) | Event::DocumentEnd => self.anchors.clear(),
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    self.flaw((start, end), "yaml-alias", "this alias stands inside its own anchor".into(), None);
                    return Err(Stop);
                };
                self.count(size, (start, end))?;
                if self.open.len() + depth(&node) > DEPTH_MAX {
                    return self.too_deep(start);
                }
                self.place(node, 0)?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, (start, end))?;
                let forced = self.tag(tag.as_deref(), (start, end));
                let quoted = forced || style != ScalarStyle::Plain;
                let end = start + self.text[start..end.max(start)].trim_end().len();
                let span = self.positions.span(start, end);
                let kind = Kind::Scalar(Scalar { text: bare::reveal(&text).into_owned(), quoted });
                self.place(Node { span, kind }, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag(tag.as_deref(), (start, end));
                self.begin(start, anchor, Content::List(vec![]))?;
            }
            Event::MappingStart(anchor, tag) => {
                self.tag(tag.as_deref(), (start, end));
                self.begin(start, anchor, Content::Map { entries: vec![], key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Err(Stop) };
                let end = open.start + self.text[open.start..end.max(open.start)].trim_end().len();
                let span = self.positions.span(open.start, end);
                let kind = match open.content {
                    Content::List(items) => Kind::List(items),
                    Content::Map { entries, .. } => Kind::Map(self.merge(entries)),
                };
                self.place(Node { span, kind }, open.anchor)?;
            }
        }
        Ok(())
    }

    /// Whether the tag says that the scalar is text.
    fn tag(&mut self, tag: Option<&saphyr_parser::Tag>, at: (usize, usize)) -> bool {
        let Some(tag) = tag else { return false };
        if tag.is_yaml_core_schema() && tag.suffix == "str" {
            return true;
        }
        if !(tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "map" | "seq" | "int" | "float" | "bool" | "null")) {
            self.flaw(at, "yaml-tag", format!("the tag `{tag}` is not known here"), Some("leave the tag out".into()));
        }
        false
    }

    fn count(&mut self, nodes: usize, at: (usize, usize)) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values once its aliases are written out");
            self.flaw(at, "file-too-large", message, None);
            return Err(Stop);
        }
        Ok(())
    }

    fn begin(&mut self, start: usize, anchor: usize, content: Content) -> Result<(), Stop> {
        self.count(1, (start, start + 1))?;
        if self.open.len() >= DEPTH_MAX {
            return self.too_deep(start);
        }
        self.open.push(Open { start, anchor, content });
        Ok(())
    }

    fn too_deep(&mut self, start: usize) -> Result<(), Stop> {
        let message = format!("lists and maps stand more than {DEPTH_MAX} deep in one another");
        self.flaw((start, start), "file-too-deep", message, None);
        Err(Stop)
    }

    fn place(&mut self, node: Node, anchor: usize) -> Result<(), Stop> {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), size(&node)));
        }
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key } => match key.take() {
                None => match node.kind {
                    Kind::Scalar(scalar) => *key = Some((scalar.text, node.span)),
                    _ => {
                        let at = (node.span.start, node.span.end);
                        *key = Some((String::new(), node.span));
                        self.flaw(at, "yaml-key", "a list or a map cannot be a key".into(), None);
                    }
                },
                Some((key, key_span)) => {
                    let first = entries.iter().find(|entry| entry.key == key && key != "<<");
                    if let Some(first) = first.map(|entry| entry.key_span) {
                        let message = format!("`{key}` stands here twice; the first is on line {}", first.line);
                        self.flaw((key_span.start, key_span.end), "duplicate-key", message, Some("keep one of them".into()));
                    } else {
                        entries.push(Entry { key, key_span, value: node });
                    }
                }
            },
        }
        Ok(())
    }

    /// `<<: *anchor` adds what is not there already.
    fn merge(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let (merges, mut own): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(|entry| entry.key == "<<");
        for merge in merges {
            let sources = match merge.value.kind {
                Kind::List(items) => items,
                kind => vec![Node { span: merge.value.span, kind }],
            };
            for source in sources {
                match source.kind {
                    Kind::Map(more) => {
                        for entry in more {
                            if !own.iter().any(|mine| mine.key == entry.key) {
                                own.push(entry);
                            }
                        }
                    }
                    _ => {
                        let at = (merge.key_span.start, merge.key_span.end);
                        self.flaw(at, "yaml-merge", "`<<` takes an alias of a map".into(), None);
                    }
                }
            }
        }
        own
    }
}

fn size(node: &Node) -> usize {
    1 + match &node.kind {
        Kind::Scalar(_) => 0,
        Kind::List(items) => items.iter().map(size).sum(),
        Kind::Map(entries) => entries.iter().map(|entry| size(&entry.value)).sum(),
    }
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Scalar(_) => 0,
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
    }
}
