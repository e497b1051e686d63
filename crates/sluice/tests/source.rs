//! Limits of the source code: functions on the path of an event, which ARCHITECTURE.md lists, and imports between components.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 60;
/// Arguments of a function, without `self`.
const ARGUMENTS_MAX: usize = 5;
/// Files and directories of the path, and beside it what starts and operates a node.
const CHECKED: [&str; 12] = [
    "crates/domain/src",
    "crates/ledger/src",
    "crates/connectors/src",
    "crates/server/src/intake",
    "crates/server/src/schedule",
    "crates/server/src/work",
    "crates/server/src/access",
    "crates/server/src/console",
    "crates/server/src/operate",
    "crates/server/src/maintain",
    "crates/server/src/watch",
    "crates/server/src/run.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files at or below a path, without files of tests.
fn rust_files(at: &Path) -> Vec<PathBuf> {
    if at.is_file() {
        return vec![at.to_owned()];
    }
    let entries = std::fs::read_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display()));
    let mut files: Vec<PathBuf> =
        entries.flat_map(|entry| rust_files(&entry.expect("an entry of a directory is read").path())).collect();
    let is_test = |file: &Path| file.to_string_lossy().ends_with("tests.rs");
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs") && !is_test(file));
    files.sort();
    files
}

/// The source with comments, strings and characters replaced by spaces, so that braces and commas are those of the code.
fn code_of(source: &str) -> Vec<u8> {
    let mut code = source.as_bytes().to_vec();
    let mut at = 0;
    while at < code.len() {
        let end = literal_end(source, at);
        for byte in &mut code[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    code
}

/// The end of the comment, string or character that begins here; `at` if none does.
fn literal_end(source: &str, at: usize) -> usize {
    let rest = &source.as_bytes()[at..];
    let found = |needle: &[u8], from: usize| {
        let position = rest[from..].windows(needle.len()).position(|window| window == needle);
        position.map_or(source.len(), |position| at + from + position + needle.len())
    };
    let in_word = at > 0 && (source.as_bytes()[at - 1].is_ascii_alphanumeric() || source.as_bytes()[at - 1] == b'_');
    let raw = rest.strip_prefix(b"b").unwrap_or(rest).strip_prefix(b"r").filter(|_| !in_word);
    let hashes = raw.map(|raw| raw.iter().take_while(|byte| **byte == b'#').count());
    match rest {
        [b'/', b'/', ..] => found(b"\n", 0).saturating_sub(1).max(at),
        [b'/', b'*', ..] => found(b"*/", 2),
        [b'"', ..] => string_end(source, at),
        [b'\'', b'\\', ..] => found(b"'", 3),
        // A lifetime has no closing quote behind its first character.
        [b'\'', ..] => {
            let character = source[at + 1..].chars().next().map_or(0, char::len_utf8);
            if rest.get(1 + character) == Some(&b'\'') { at + character + 2 } else { at }
        }
        _ => match (raw, hashes) {
            (Some(raw), Some(hashes)) if raw.get(hashes) == Some(&b'"') => {
                let close = format!("\"{}", "#".repeat(hashes));
                found(close.as_bytes(), rest.len() - raw.len() + hashes + 1)
            }
            _ => at,
        },
    }
}

fn string_end(source: &str, start: usize) -> usize {
    let bytes = source.as_bytes();
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    line: usize,
    arguments: usize,
    lines: usize,
}

fn functions(source: &str) -> Vec<Function> {
    let code = code_of(source);
    let text = String::from_utf8_lossy(&code).into_owned();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = text.match_indices("fn ").filter(|(at, _)| *at == 0 || !is_word(code[at - 1]));
    starts.filter_map(|(at, _)| function(&text, at)).collect()
}

/// The function whose `fn` is here; `None` for the type of a function.
fn function(text: &str, at: usize) -> Option<Function> {
    let name: String = text[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let open = at + 3 + name.len();
    if name.is_empty() {
        return None;
    }
    let (arguments, end) = arguments(text, open)?;
    let body = end + text[end..].find(['{', ';'])?;
    let end = if text[body..].starts_with('{') { closing(text, body)? } else { body };
    let line = text[..at].matches('\n').count() + 1;
    Some(Function { name, line, arguments, lines: text[at..end].matches('\n').count() + 1 })
}

/// Counts the arguments of the list behind the generic parameters at `from`. Returns its end.
fn arguments(text: &str, from: usize) -> Option<(usize, usize)> {
    let (mut depth, mut angles, mut open, mut start) = (0, 0, false, from);
    let mut found = Vec::new();
    for (offset, c) in text[from..].char_indices() {
        let at = from + offset;
        match c {
            '<' => angles += 1,
            '>' if !text[..at].ends_with('-') && !text[..at].ends_with('=') => angles -= 1,
            '(' if angles == 0 && !open => (open, depth, start) = (true, 1, at + 1),
            '(' | '[' | '{' => depth += 1,
            ',' if open && depth == 1 && angles == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            ')' if open && depth == 1 && angles == 0 => {
                found.push(&text[start..at]);
                let is_self = |argument: &&str| argument.split(':').next().is_some_and(|name| name.ends_with("self"));
                let found = found.iter().map(|argument| argument.trim()).filter(|argument| !argument.is_empty());
                return Some((found.filter(|argument| !is_self(argument)).count(), at + 1));
            }
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The position of the brace that closes the one at `open`.
fn closing(text: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    text[open..].char_indices().find_map(|(offset, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(open + offset)
    })
}

#[test]
fn functions_on_the_path_of_an_event_are_short_and_have_few_arguments() {
    let mut beyond = Vec::new();
    let mut count = 0;
    for checked in CHECKED {
        for file in rust_files(&root().join(checked)) {
            let source = std::fs::read_to_string(&file).unwrap();
            for Function { name, line, arguments, lines } in functions(&source) {
                count += 1;
                if lines > FUNCTION_LINES_MAX || arguments > ARGUMENTS_MAX {
                    let file = file.strip_prefix(root()).unwrap().display();
                    beyond.push(format!("{file}:{line} {name}: {lines} lines, {arguments} arguments"));
                }
            }
        }
    }
    assert!(count > 1_000, "only {count} functions were found");
    assert_eq!(beyond, Vec::<String>::new(), "at most {FUNCTION_LINES_MAX} lines and {ARGUMENTS_MAX} arguments");
}

/// The modules of the crate that a source names, by their first name.
fn imports(source: &str) -> BTreeSet<String> {
    let code = code_of(source);
    let text = String::from_utf8_lossy(&code).into_owned();
    let mut found = BTreeSet::new();
    for (at, path) in text.match_indices("crate::") {
        let rest = &text[at + path.len()..];
        let names = match rest.strip_prefix('{').and(closing(rest, 0)) {
            Some(end) => outer_parts(&rest[1..end]),
            None => vec![rest],
        };
        let first =
            |name: &str| name.trim_start().split(|c: char| !c.is_alphanumeric() && c != '_').next().map(String::from);
        found.extend(names.into_iter().filter_map(first).filter(|name| !name.is_empty()));
    }
    found
}

/// The parts of a list between its commas, without those within braces.
fn outer_parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// Removes the modules that import none of those that are left, again and again. What stays is part of a circle, or imports one.
fn circular(mut imports: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let names: BTreeSet<String> = imports.keys().cloned().collect();
        for used in imports.values_mut() {
            used.retain(|name| names.contains(name));
        }
        let before = imports.len();
        imports.retain(|_, used| !used.is_empty());
        if imports.len() == before {
            return imports;
        }
    }
}

#[test]
fn components_of_the_server_do_not_import_each_other_in_a_circle() {
    let source = root().join("crates/server/src");
    let mut modules = BTreeMap::<String, BTreeSet<String>>::new();
    for file in rust_files(&source) {
        let place = file.strip_prefix(&source).unwrap();
        let module = place.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned();
        let used = imports(&std::fs::read_to_string(&file).unwrap());
        modules.entry(module.clone()).or_default().extend(used.into_iter().filter(|name| *name != module));
    }
    assert!(modules.len() > 15, "only {} modules were found", modules.len());
    for (module, used) in &modules {
        assert!(!used.contains("cli"), "`{module}` imports the command line");
    }
    // It starts and stops every component.
    modules.remove("run");
    assert_eq!(circular(modules), BTreeMap::new(), "modules on the left import those on the right");
}

#[test]
fn imports_are_found_in_lists_and_paths() {
    let source = "use crate::{intake::{self, Api}, schedule};\nfn f() { crate::pauses::sources(); } // crate::cli\n";
    assert_eq!(imports(source), ["intake", "pauses", "schedule"].map(String::from).into());
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in edges {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        graph
    };
    assert!(circular(graph(&[("a", "b"), ("b", "c"), ("d", "b")])).is_empty());
    assert_eq!(circular(graph(&[("a", "b"), ("b", "a"), ("b", "c")])), graph(&[("a", "b"), ("b", "a")]));
}

#[test]
fn every_file_on_the_path_of_an_event_exists_and_is_checked() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let path: Vec<&str> = page.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let path: Vec<&str> =
        path.into_iter().filter(|word| word.starts_with("crates/") && word.contains("/src/")).collect();
    assert!((20..=30).contains(&path.len()), "{} files", path.len());
    for file in path {
        assert!(root().join(file).exists(), "{file} does not exist");
        assert!(CHECKED.iter().any(|checked| file.starts_with(checked)), "{file} is not checked");
    }
}

#[test]
fn functions_are_measured_without_strings_and_comments() {
    let source = r##"
fn one<T: Fn(u8, u8) -> u8>(&mut self, a: (u8, u8), b: Vec<(u8, u8)>) -> u8 {
    // } is a comment, "so is this
    let text = "} \" {"; let raw = r#"}"#; let brace = '}'; let life: &'static str = "";
}
fn two();
type F = fn (u8, u8);
"##;
    let one = Function { name: "one".to_owned(), line: 2, arguments: 2, lines: 4 };
    let two = Function { name: "two".to_owned(), line: 6, arguments: 0, lines: 1 };
    assert_eq!(functions(source), [one, two]);
}
