//! Parses YAML and JSON text to a tree of [`YamlNode`]s.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::node::{Scalar, Span, YamlEntry, YamlKind, YamlNode};
use super::template_escape;

pub(super) const FILE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum nesting of lists and maps.
pub(super) const DEPTH_MAX: usize = 48;
/// Maximum number of nodes after alias expansion.
pub(super) const NODES_MAX: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParseProblem {
    pub span: Span,
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
}

/// Maps character indexes to positions.
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

/// Parses every document of a text. Documents before a syntax error are returned with it.
pub(super) fn parse(text: &str) -> (Vec<YamlNode>, Vec<ParseProblem>) {
    let positions = Positions::new(text);
    let mut builder =
        Builder { text, positions, open: vec![], documents: vec![], anchors: HashMap::new(), nodes: 0, flaws: vec![] };
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file has {} bytes; {FILE_BYTES_MAX} are allowed", text.len());
        builder.flaw((0, 0), "file-too-large", message, None);
        return (vec![], builder.flaws);
    }
    if let Some(at) = template_escape::find_reserved(text) {
        let message = "a private-use character (U+F0020 to U+F007E) is not allowed".to_owned();
        builder.flaw((at, at + 4), "yaml-syntax", message, None);
        return (vec![], builder.flaws);
    }
    let hidden = template_escape::hide(text);
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

/// Open list or map.
struct Open {
    start: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<YamlNode>),
    Map { entries: Vec<YamlEntry>, key: Option<(String, Span)> },
}

struct Builder<'a> {
    text: &'a str,
    positions: Positions,
    open: Vec<Open>,
    documents: Vec<YamlNode>,
    anchors: HashMap<usize, (YamlNode, usize)>,
    nodes: usize,
    flaws: Vec<ParseProblem>,
}

/// Ends parsing of the file.
struct Stop;

impl Builder<'_> {
    fn flaw(&mut self, (start, end): (usize, usize), code: &'static str, message: String, hint: Option<String>) {
        let span = self.positions.span(start, end);
        self.flaws.push(ParseProblem { span, code, message, hint });
    }

    /// Reports a syntax error with a hint for its usual cause.
    fn syntax(&mut self, at: usize, info: &str) {
        let at = at.min(self.text.len());
        let at = if info.contains("tab") { self.tab_near(at) } else { at };
        let begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[begin..].lines().next().unwrap_or("");
        let hint = if is_indented_by_tab(line) {
            Some("indent with spaces; YAML does not allow tabs there")
        } else if line.contains("{{") && !line.contains("}}") {
            Some("an unquoted {{ … }} must end on the same line")
        } else if line.contains("}}: ") || line.matches(": ").count() > 1 {
            Some("text that contains `: ` must be in quotes")
        } else {
            None
        };
        let end = at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        self.flaw((at, end), "yaml-syntax", format!("invalid YAML: {info}"), hint.map(str::to_owned));
    }

    /// The parser reports the value before a tab; this finds the tab.
    fn tab_near(&self, at: usize) -> usize {
        let mut begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        for line in self.text[begin..].split_inclusive('\n').take(3) {
            if is_indented_by_tab(line) {
                return begin + line.find('\t').unwrap_or(0);
            }
            begin += line.len();
        }
        at
    }

    fn event(&mut self, event: Event<'_>, start: usize, end: usize) -> Result<(), Stop> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd => {}
            Event::DocumentStart(_) | Event::DocumentEnd => self.anchors.clear(),
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    self.flaw((start, end), "yaml-alias", "this alias is inside its own anchor".into(), None);
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
                let kind = YamlKind::Scalar(Scalar { text: template_escape::reveal(&text).into_owned(), quoted });
                self.place(YamlNode { span, kind }, anchor)?;
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
                    Content::List(items) => YamlKind::List(items),
                    Content::Map { entries, .. } => YamlKind::Map(self.merge(entries)),
                };
                self.place(YamlNode { span, kind }, open.anchor)?;
            }
        }
        Ok(())
    }

    /// Whether the tag marks the scalar as text.
    fn tag(&mut self, tag: Option<&saphyr_parser::Tag>, at: (usize, usize)) -> bool {
        let Some(tag) = tag else { return false };
        if tag.is_yaml_core_schema() && tag.suffix == "str" {
            return true;
        }
        if !(tag.is_yaml_core_schema()
            && matches!(tag.suffix.as_str(), "map" | "seq" | "int" | "float" | "bool" | "null"))
        {
            self.flaw(at, "yaml-tag", format!("the tag `{tag}` is not supported"), Some("remove the tag".into()));
        }
        false
    }

    fn count(&mut self, nodes: usize, at: (usize, usize)) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            let message = format!("the file has more than {NODES_MAX} values after alias expansion");
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
        let message = format!("lists and maps are nested more than {DEPTH_MAX} levels deep");
        self.flaw((start, start), "file-too-deep", message, None);
        Err(Stop)
    }

    fn place(&mut self, node: YamlNode, anchor: usize) -> Result<(), Stop> {
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
                    YamlKind::Scalar(scalar) => *key = Some((scalar.text, node.span)),
                    _ => {
                        let at = (node.span.start, node.span.end);
                        *key = Some((String::new(), node.span));
                        self.flaw(at, "yaml-key", "a list or a map cannot be a key".into(), None);
                    }
                },
                Some((key, key_span)) => {
                    let first = entries.iter().find(|entry| entry.key == key && key != "<<");
                    if let Some(first) = first.map(|entry| entry.key_span) {
                        let message = format!("duplicate key `{key}`; the first is on line {}", first.line);
                        self.flaw(
                            (key_span.start, key_span.end),
                            "duplicate-key",
                            message,
                            Some("remove one of them".into()),
                        );
                    } else {
                        entries.push(YamlEntry { key, key_span, value: node });
                    }
                }
            },
        }
        Ok(())
    }

    /// `<<: *anchor` adds missing keys.
    fn merge(&mut self, entries: Vec<YamlEntry>) -> Vec<YamlEntry> {
        let (merges, mut own): (Vec<YamlEntry>, Vec<YamlEntry>) =
            entries.into_iter().partition(|entry| entry.key == "<<");
        for merge in merges {
            let sources = match merge.value.kind {
                YamlKind::List(items) => items,
                kind => vec![YamlNode { span: merge.value.span, kind }],
            };
            for source in sources {
                match source.kind {
                    YamlKind::Map(more) => {
                        for entry in more {
                            if !own.iter().any(|mine| mine.key == entry.key) {
                                own.push(entry);
                            }
                        }
                    }
                    _ => {
                        let at = (merge.key_span.start, merge.key_span.end);
                        self.flaw(at, "yaml-merge", "`<<` requires an alias of a map".into(), None);
                    }
                }
            }
        }
        own
    }
}

fn is_indented_by_tab(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with('\t')
}

fn size(node: &YamlNode) -> usize {
    1 + match &node.kind {
        YamlKind::Scalar(_) => 0,
        YamlKind::List(items) => items.iter().map(size).sum(),
        YamlKind::Map(entries) => entries.iter().map(|entry| size(&entry.value)).sum(),
    }
}

fn depth(node: &YamlNode) -> usize {
    match &node.kind {
        YamlKind::Scalar(_) => 0,
        YamlKind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        YamlKind::Map(entries) => 1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0),
    }
}
