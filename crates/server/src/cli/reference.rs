//! `sluice reference` and `sluice completions`: pages and scripts that are made from the code, so that they cannot lie.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Arg, Command};

use super::{CliError, exit, print};
use crate::{config, operate};

/// Print a reference page, or compare one with this build
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sluice reference configuration > docs/reference/configuration.md\n  sluice reference cli --check docs/reference/cli.md"
)]
pub struct Reference {
    /// Which page
    #[arg(value_enum)]
    page: Page,
    /// Compare with this file instead of printing; exit code 1 if it differs
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Page {
    /// Every key of the configuration, in Markdown
    Configuration,
    /// Workers and their steps, in Markdown
    Steps,
    /// Every action and its parameters, in Markdown
    Actions,
    /// What expressions see and can do, in Markdown
    Expressions,
    /// Policies and safe mode, in Markdown
    Policies,
    /// Every command and its flags, in Markdown
    Cli,
    /// The admin API, as OpenAPI in JSON
    Api,
    /// The configuration, as a JSON Schema for editors
    Schema,
}

/// Print a script that completes commands and flags in a shell
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  sluice completions bash > ~/.local/share/bash-completion/completions/sluice\n  sluice completions zsh > \"${fpath[1]}/_sluice\"\n  sluice completions fish > ~/.config/fish/completions/sluice.fish"
)]
pub struct Completions {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn run(self, mut program: Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "sluice", &mut script);
        print::print(&String::from_utf8_lossy(&script))
    }
}

impl Reference {
    pub fn run(self, program: Command) -> Result<(), CliError> {
        let page = match self.page {
            Page::Configuration => config::reference(),
            Page::Steps => config::steps(),
            Page::Actions => config::actions(),
            Page::Expressions => config::expressions(),
            Page::Policies => config::policies(),
            Page::Cli => cli(program),
            Page::Api => operate::openapi(),
            Page::Schema => print::pretty(&config::editor_schema()),
        };
        let Some(file) = self.check else { return print::print(&page) };
        let kept = std::fs::read_to_string(&file)
            .map_err(|error| CliError::new(exit::USAGE, format!("{} cannot be read: {error}", file.display())))?;
        match first_difference(&kept, &page) {
            None => print::print(&format!("{} is up to date.", file.display())),
            Some((line, kept, made)) => Err(CliError::new(
                exit::NO,
                format!(
                    "{} differs from this build in line {line}:\n  - {kept}\n  + {made}\nWrite it again with `sluice reference`.",
                    file.display()
                ),
            )),
        }
    }
}

/// The first line in which two texts differ. How the last line ends does not matter.
fn first_difference<'a>(kept: &'a str, made: &'a str) -> Option<(usize, &'a str, &'a str)> {
    let (kept, made): (Vec<&str>, Vec<&str>) = (kept.trim_end().lines().collect(), made.trim_end().lines().collect());
    (0..kept.len().max(made.len())).find_map(|place| {
        let (old, new) = (kept.get(place).copied(), made.get(place).copied());
        (old != new).then(|| (place + 1, old.unwrap_or("(the end)"), new.unwrap_or("(the end)")))
    })
}

/// The page about the command line, in Markdown.
fn cli(mut command: Command) -> String {
    command.build();
    let mut page = String::from("# Command line\n\nMade by `sluice reference cli`; do not edit it by hand.\n");
    let _ = write!(page, "\n{}\n", text(command.get_about()));
    page.push_str("\n| command | |\n|---|---|\n");
    for sub in visible(&command) {
        let name = sub.get_name();
        let _ = writeln!(page, "| [`sluice {name}`](#sluice-{name}) | {} |", cell(&text(sub.get_about())));
    }
    page.push_str("\nOptions of every command:\n\n");
    options(&mut page, command.get_arguments().filter(|argument| argument.is_global_set()));
    fenced(&mut page, &text(command.get_after_help()));
    for sub in visible(&command) {
        section(&mut page, sub, "sluice", 2);
    }
    page
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
}

fn section(page: &mut String, command: &Command, parent: &str, depth: usize) {
    let name = format!("{parent} {}", command.get_name());
    let _ = write!(page, "\n{} {name}\n\n{}\n", "#".repeat(depth), text(command.get_about()));
    let usage = command.clone().render_usage().to_string();
    fenced(page, usage.trim_start_matches("Usage:").trim());
    let own = |argument: &&Arg| !argument.is_global_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    if command.get_arguments().any(|argument| own(&argument)) {
        page.push('\n');
        options(page, command.get_arguments().filter(own));
    }
    fenced(page, &text(command.get_after_help()));
    for sub in visible(command) {
        section(page, sub, &name, depth + 1);
    }
}

fn options<'a>(page: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    page.push_str("| | | environment | when left out |\n|---|---|---|---|\n");
    for argument in arguments {
        let value =
            argument.get_value_names().and_then(|names| names.first()).map(|name| name.to_string()).unwrap_or_default();
        let takes_value = argument.get_action().takes_values();
        let shown = match argument.get_long() {
            Some(long) if takes_value => format!("--{long} {value}"),
            Some(long) => format!("--{long}"),
            None => value,
        };
        let environment = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
        let defaults: Vec<String> =
            argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let mut about = text(argument.get_help());
        if takes_value {
            let words: Vec<String> =
                argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
            if !words.is_empty() {
                about = format!("{about}: {}", words.join(", "));
            }
        }
        let defaults = if takes_value { defaults.join(", ") } else { String::new() };
        let _ = writeln!(page, "| `{}` | {} | {environment} | {} |", cell(&shown), cell(&about), cell(&defaults));
    }
}

fn fenced(page: &mut String, text: &str) {
    if !text.is_empty() {
        let _ = write!(page, "\n```text\n{text}\n```\n");
    }
}

fn text(styled: Option<&clap::builder::StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default().trim().to_owned()
}

/// A bar would end the cell, and so would a line.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_and_the_last_newline_is_none() {
        assert_eq!(first_difference("a\nb\n", "a\nb"), None);
        assert_eq!(first_difference("a\nb", "a\nc"), Some((2, "b", "c")));
        assert_eq!(first_difference("a", "a\nc"), Some((2, "(the end)", "c")));
    }
}
