//! The reports of arguments that clap rejects, in the form of all other reports.
//!
//! clap describes an error by values (its context), from which this module builds the report. The texts of clap are not
//! used, with one exception: the kinds of errors that have no context.

use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};
use std::os::unix::ffi::OsStrExt as _;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::commands::build::PARTITION_KEYS;
use crate::meant::unknown_command;
use crate::parse::image_format::is_only_read;
use crate::parse::similar::similar;
use crate::report::{Report, printable, shell_word, subject};
use crate::typed::TypedWords;

/// Returns the report of `error`. `help` is the command that shows help: `obento help`, or `help` in a shell. `words`
/// are the words that the user typed, after the program.
pub fn report(error: &Error, help: &str, words: &[OsString]) -> Report {
    let arguments = texts(error, ContextKind::InvalidArg);
    let tree = crate::help::command();
    let typed = TypedWords::new(words, &tree);
    let argument = arguments.first().map_or_else(String::new, |text| typed.name(&named(text)));
    match (error.kind(), arguments.is_empty()) {
        (ErrorKind::InvalidSubcommand, _) => unknown_command(error, &tree, help),
        (ErrorKind::UnknownArgument, false) => unknown(error, &arguments[0], help, &tree),
        (ErrorKind::InvalidValue, false) => value(error, &argument, &typed.help(help)),
        (ErrorKind::ValueValidation, false) => invalid(error, &argument),
        (ErrorKind::NoEquals, false) => Report::plain(format!("{argument} requires '=' before its value")),
        (ErrorKind::MissingRequiredArgument, false) => {
            usage(error, Report::plain(format!("missing {}", missing(error, &arguments))))
        }
        (ErrorKind::WrongNumberOfValues, false) => {
            let names: Vec<String> = arguments[0].split("> <").map(named).collect();
            let names = all(&names, "and");
            usage(
                error,
                Report::plain(match count(error, ContextKind::ActualNumValues) {
                    found if found > count(error, ContextKind::ExpectedNumValues) => {
                        format!("too many operands: only {names} are expected")
                    }
                    _ => format!("missing operand: {names} are required"),
                }),
            )
        }
        (ErrorKind::TooManyValues, false) => {
            let found = texts(error, ContextKind::InvalidValue).into_iter().next().unwrap_or_default();
            Report::plain(format!("unexpected value {} for {argument}", subject(found)))
                .help(format!("'{}' describes the options", help_of(error, help)))
        }
        (ErrorKind::MissingSubcommand, _) => {
            let list = help_of(error, help);
            Report::plain("missing command")
                .help(format!("'{}' lists the commands", list.trim_end_matches(" options")))
        }
        (ErrorKind::ArgumentConflict, false) => conflict(error, &named(&arguments[0]), help, &typed),
        (ErrorKind::InvalidUtf8, _) => not_text(words),
        _ => {
            let text = error.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text);
            Report::plain(text.split("\n\n").next().unwrap_or_default().trim_end())
        }
    }
}

/// Returns the report of a value that is not text. Paths may be any bytes, so `words` can contain several candidates.
fn not_text(words: &[OsString]) -> Report {
    let invalid: Vec<String> =
        words.iter().filter(|word| word.to_str().is_none()).map(|word| subject(word.as_bytes())).collect();
    match &invalid[..] {
        [] => Report::plain("an argument is not valid UTF-8"),
        [word] => Report::plain(format!("argument {word} is not valid UTF-8")),
        words => Report::plain(format!("the value of an option is not valid UTF-8: {}", all(words, "or"))),
    }
}

/// Returns why the value of an argument was rejected, or `None` if the error does not say it.
fn why(error: &Error) -> Option<String> {
    let cause = error.source()?;
    let found = cause.to_string();
    Some(match cause.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
        Some(IntErrorKind::PosOverflow) => "the number is too large".to_owned(),
        Some(IntErrorKind::NegOverflow) => "the number is too small".to_owned(),
        Some(_) => "not a whole number".to_owned(),
        None if cause.is::<ParseFloatError>() => "not a number".to_owned(),
        None => range(&found).unwrap_or(found),
    })
}

/// Returns the words for an error of the parser such as `99 is not in 1..=80`.
fn range(found: &str) -> Option<String> {
    let (value, range) = found.split_once(" is not in ")?;
    let (least, most) = range.split_once("..")?;
    let most = most.trim_start_matches('=');
    // A limit that the value exceeds is named, however large it is.
    let is_above = matches!((value.parse::<i128>(), most.parse()), (Ok(value), Ok(most)) if value > most);
    let has_limit = is_above || !matches!(most.parse(), Ok(0 | NO_LIMIT..));
    Some(if has_limit && !most.is_empty() {
        format!("must be a number from {least} to {most}")
    } else {
        format!("must be {least} or more")
    })
}

/// The least maximum of a type of numbers, which is not a limit that a user needs to know.
const NO_LIMIT: u64 = u32::MAX as u64;

fn unknown(error: &Error, argument: &str, help: &str, tree: &clap::Command) -> Report {
    if let Some(report) = negative_size(error, argument) {
        return report;
    }
    let list = format!("'{}' lists the options", help_of(error, help));
    let known: Vec<String> = texts(error, ContextKind::SuggestedArg).iter().map(|text| named(text)).collect();
    // clap also suggests names that have little in common with the argument.
    let name = |option: &str| option.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned();
    let known =
        known.iter().find(|known| similar(&name(argument), [name(known).as_str()].into_iter()).is_some());
    let known = known.cloned().or_else(|| completed(error, argument));
    match (argument.starts_with('-'), known) {
        (true, Some(known)) => Report::plain(format!("unknown option {}", subject(argument)))
            .help(format!("did you mean '{known}'? {list}")),
        (true, None) => Report::plain(format!("unknown option {}", subject(argument))).help(list),
        (false, _) if has_commands(error, tree) => {
            let list = help_of(error, help);
            Report::plain(format!("unknown command {}", subject(argument)))
                .help(format!("'{list}' lists the commands"))
        }
        (false, _) => usage(error, Report::plain(format!("unexpected operand {}", subject(argument)))),
    }
}

/// Returns whether the command in the usage has commands of its own.
fn has_commands(error: &Error, tree: &clap::Command) -> bool {
    let words = command_words(error);
    let command = words.iter().try_fold(tree, |command, word| command.find_subcommand(word));
    !words.is_empty() && command.is_some_and(clap::Command::has_subcommands)
}

/// Returns the report of a size such as `-1M`, which clap reads as options.
fn negative_size(error: &Error, argument: &str) -> Option<Report> {
    let is_number = argument.strip_prefix('-')?.starts_with(|c: char| c.is_ascii_digit());
    let usage = lines_of_usage(error);
    let takes_size = usage.iter().any(|line| line.contains("SIZE"));
    let help = match command_words(error).first().map(String::as_str) {
        Some("resize") => "write the new size, or use --minimum to shrink the volume as far as possible",
        _ => "write a size such as 10M",
    };
    (is_number && takes_size).then(|| Report::plain("a size cannot start with '-'").help(help))
}

/// Returns the only option of the command that starts with `argument`, such as `--maximum` for `--max`.
fn completed(error: &Error, argument: &str) -> Option<String> {
    let start = argument.strip_prefix("--").filter(|start| start.len() >= 2)?;
    let root = crate::help::command();
    let mut command = &root;
    for word in command_words(error) {
        command = command.find_subcommand(word)?;
    }
    let options = command.get_arguments().chain(root.get_arguments()).filter(|option| !option.is_hide_set());
    let mut names = options.filter_map(|option| option.get_long()).filter(|name| name.starts_with(start));
    let name = names.next()?;
    names.all(|other| other == name).then(|| format!("--{name}"))
}

/// Returns the report of a value that is missing, or that is not one of a list.
fn value(error: &Error, argument: &str, help: &str) -> Report {
    let found = texts(error, ContextKind::InvalidValue).into_iter().next().unwrap_or_default();
    let known = texts(error, ContextKind::ValidValue);
    let report = match found.is_empty() {
        true => Report::plain(format!("{argument} requires a value"))
            .help(format!("'{help}' describes the options")),
        false => Report::plain(format!("invalid value {} for {argument}", subject(&found))),
    };
    // An image format that only another program writes is not a misspelt name.
    if is_only_read(&found) && known.iter().any(|name| name == "qcow2") {
        let cause = format!("{argument}: obento does not write {} images", printable(found.as_bytes()));
        return Report::plain(cause).help(format!("use {}", all(&known, "or")));
    }
    // The first letter is rarely wrong: csh is not zsh.
    let first = found.chars().next();
    let alike = known.iter().map(String::as_str).filter(|name| name.chars().next() == first);
    match (similar(&found, alike), known.is_empty()) {
        (Some(similar), _) => report.help(format!("did you mean '{similar}'?")),
        (None, false) => report.help(format!("use {}", all(&known, "or"))),
        (None, true) => report,
    }
}

fn invalid(error: &Error, argument: &str) -> Report {
    let found = texts(error, ContextKind::InvalidValue).into_iter().next().unwrap_or_default();
    let what = format!("invalid value {} for {argument}", subject(&found));
    // `obento resize 10M disk.img`
    if argument == "SIZE" && std::path::Path::new(&found).exists() {
        let file = shell_word(&found);
        return Report::new(what, "not a size").help(format!("the image comes before the size: {file} SIZE"));
    }
    match why(error) {
        // The text names the part of the value that is wrong.
        Some(why) if why.starts_with("invalid ") || why.starts_with("unknown ") => Report::plain(why),
        Some(why) => Report::new(what, why),
        None => Report::plain(what),
    }
}

fn conflict(error: &Error, argument: &str, help: &str, typed: &TypedWords) -> Report {
    let all_others: Vec<String> =
        texts(error, ContextKind::PriorArg).iter().map(|text| named(text)).collect();
    // clap lists every option that excludes the argument, although the user typed few of them.
    let mut others: Vec<&String> = all_others.iter().filter(|other| typed.contains(other)).collect();
    if others.is_empty() {
        others = all_others.iter().collect();
    }
    let key = (argument == "--disk").then(|| others.iter().find_map(|other| layout_key(other))).flatten();
    let shown = typed.name(argument);
    let others: Vec<String> = others.into_iter().map(|other| typed.name(other)).collect();
    let cause = match others.as_slice() {
        [] => format!("{shown} cannot be used with other arguments"),
        [other] if *other == shown => format!("{shown} can be used only once"),
        others => format!("{shown} cannot be used with {}", all(others, "or")),
    };
    let report = Report::plain(cause);
    match key {
        Some(key) => {
            report.help(format!("write '{key} = ...' in the layout; '{help} layout' describes the keys"))
        }
        None => report.help(format!("'{}' describes the options", help_of(error, help))),
    }
}

/// Returns the key of a layout that has the meaning of an option of `build`.
fn layout_key(option: &str) -> Option<&str> {
    match option.strip_prefix("--")? {
        "type" => Some("content"),
        "label" => Some("fs-label"),
        "uuid" => Some("fs-uuid"),
        name => PARTITION_KEYS.contains(&name).then_some(name),
    }
}

/// Returns the names of missing arguments, with the word for their kind.
fn missing(error: &Error, arguments: &[String]) -> String {
    let names: Vec<String> = arguments.iter().flat_map(|text| text.split("> <")).map(named).collect();
    if let Some(operands) = operands(error, &names) {
        return format!("operands {}", all(&operands, "and"));
    }
    let is_option = |name: &String| name.starts_with('-');
    let has_options = names.iter().any(|name| is_option(name) || name.contains(" or -"));
    match (has_options, names.len()) {
        (true, _) if names.iter().all(is_option) => format!("option: {}", all(&names, "and")),
        (true, 1) => format!("argument: {}", all(&names, "and")),
        (true, _) if names.iter().any(|name| name.contains(" or ")) => {
            format!("arguments: {}", names.join(", and "))
        }
        (true, _) => format!("arguments: {}", all(&names, "and")),
        // The usage has other names for the operands if they have different meanings.
        (false, 1) if !lines_of_usage(error).iter().any(|line| line.contains(&names[0])) => {
            "operands".to_owned()
        }
        (false, 1) => format!("operand {}", names[0]),
        (false, _) => format!("operands {}", all(&names, "and")),
    }
}

/// Returns several missing operands in the order of the usage. An operand that options can replace, as in
/// `SIZE, --maximum or --minimum`, has the name of the operand.
fn operands(error: &Error, names: &[String]) -> Option<Vec<String>> {
    let has_options = names.iter().any(|name| name.contains(" or -"));
    let name = |text: &String| text.split([',', ' ']).next().unwrap_or_default().to_owned();
    let mut names: Vec<String> = names.iter().map(name).collect();
    let usage = lines_of_usage(error).into_iter().next()?;
    names.sort_by_key(|name| usage.find(name.as_str()));
    (has_options && names.len() > 1 && names.iter().all(|name| !name.starts_with('-'))).then_some(names)
}

/// Adds the usage of the command as the hint.
fn usage(error: &Error, report: Report) -> Report {
    match lines_of_usage(error).first() {
        Some(line) => report.help(format!("usage: {line}")),
        None => report,
    }
}

fn lines_of_usage(error: &Error) -> Vec<String> {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let lines = usage.trim_start_matches("Usage:").lines().map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the words of the command in the usage, such as `part` and `grow`, without the program.
fn command_words(error: &Error) -> Vec<String> {
    let lines = lines_of_usage(error);
    let words = lines.first().into_iter().flat_map(|line| line.split_whitespace()).skip(1);
    let names = words.filter(|word| !word.starts_with(['<', '[', '-']) && !word.ends_with(['>', ']', '.']));
    names.map(str::to_owned).collect()
}

/// Returns the command that shows the options of the command in the usage.
fn help_of(error: &Error, help: &str) -> String {
    let words: Vec<String> = [help.to_owned()].into_iter().chain(command_words(error)).collect();
    // Without a command, only the options of every command are known.
    let topic = if words.len() == 1 { " options" } else { "" };
    words.join(" ") + topic
}

/// Returns the name of an argument in messages: `--size` for `--size <SIZE>`, and `SIZE` for `[SIZE]...`. Alternatives
/// become a list.
fn named(argument: &str) -> String {
    let name = argument.trim().trim_end_matches("...");
    if name.starts_with('-') {
        return name.split([' ', '[', '=']).next().unwrap_or_default().to_owned();
    }
    let inner = match (name.as_bytes().first(), name.as_bytes().last()) {
        (Some(b'<'), Some(b'>')) | (Some(b'['), Some(b']')) => &name[1..name.len() - 1],
        _ => name.trim_start_matches('<').trim_end_matches('>'),
    };
    let parts: Vec<&str> = inner.split('|').collect();
    match parts.iter().any(|part| part.starts_with('-')) {
        true => all(&parts.into_iter().map(named).collect::<Vec<_>>(), "or"),
        false => inner.to_owned(),
    }
}

/// Returns a list in words: `a, b or c`.
fn all(names: &[String], word: &str) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

fn count(error: &Error, kind: ContextKind) -> isize {
    match error.get(kind) {
        Some(ContextValue::Number(count)) => *count,
        _ => 0,
    }
}

fn texts(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        report(&crate::cli::parse(words.clone()).unwrap_err(), "obento help", &words).to_string()
    }

    #[test]
    fn a_number_out_of_range_is_reported_with_its_limits() {
        for (line, reported) in [
            ("obento bench quick --age 99", "invalid value '99' for --age: must be a number from 1 to 80"),
            ("obento bench quick --scale 0", "invalid value '0' for --scale: must be 1 or more"),
            ("obento tree -L 0 a", "invalid value '0' for -L (--level): must be 1 or more"),
            (
                "obento convert --qcow2-version 4 a b",
                "invalid value '4' for --qcow2-version: must be a number from 2 to 3",
            ),
            (
                "obento tree -L 5000000000 a",
                "invalid value '5000000000' for -L (--level): must be a number from 1 to 4294967295",
            ),
            ("obento tree -L x a", "invalid value 'x' for -L (--level): not a whole number"),
            ("obento resize a.img x", "invalid value 'x' for SIZE: not a size such as 4096, 10M or 10MB"),
        ] {
            assert_eq!(text(line), reported);
        }
    }

    #[test]
    fn a_value_that_is_not_in_a_list_is_reported_with_the_list() {
        for (line, reported) in [
            ("obento --engine x ls a", "invalid value 'x' for --engine\n  help: use native or linux"),
            ("obento --color=x ls a", "invalid value 'x' for --color\n  help: use auto, always or never"),
            ("obento ls a --sort siz", "invalid value 'siz' for --sort\n  help: did you mean 'size'?"),
            ("obento part a create x", "invalid value 'x' for TABLE\n  help: use gpt or mbr"),
            (
                "obento mount --upgrade",
                "--upgrade requires a value\n  help: 'obento help mount' describes the options",
            ),
            ("obento -t", "-t requires a value\n  help: 'obento help options' describes the options"),
            (
                "obento -o x ls a",
                "unknown mount option 'x'\n  help: 'obento help mount' lists the mount options",
            ),
            ("obento -o uid=x ls a", "invalid value 'x' for the mount option 'uid': expected a number"),
        ] {
            assert_eq!(text(line), reported);
        }
    }

    #[test]
    fn missing_arguments_are_reported_with_their_alternatives_and_the_usage() {
        for (line, reported) in [
            ("obento ls", "missing operand IMAGE[:PATH]\n  help: usage: obento ls <IMAGE[:PATH]>..."),
            (
                "obento setfattr a:/b",
                "missing option: --name, --remove or --restore\n  help: usage: obento setfattr",
            ),
            ("obento truncate a:/b", "missing option: --size or --reference\n  help: usage: obento truncate"),
            (
                "obento fallocate a:/b",
                "missing option: --length or --dig-holes\n  help: usage: obento fallocate",
            ),
            ("obento check -s a", "missing option: --safe or --yes\n  help: usage: obento check"),
            ("obento resize", "missing operands IMAGE[@PART] and SIZE\n  help: usage: obento resize"),
            (
                "obento resize a",
                "missing argument: SIZE, --maximum or --minimum\n  help: usage: obento resize",
            ),
            ("obento cmp", "missing operands FILE1 and FILE2\n  help: usage: obento cmp"),
            ("obento diff", "missing operands PATH1 and PATH2\n  help: usage: obento diff"),
            (
                "obento truncate",
                "missing arguments: --size or --reference, and IMAGE:PATH\n  help: usage: obento truncate",
            ),
            ("obento cmp a:/b", "missing operand: FILE1 and FILE2 are required\n  help: usage: obento cmp"),
            (
                "obento cmp a b c",
                "too many operands: only FILE1 and FILE2 are expected\n  help: usage: obento cmp",
            ),
            (
                "obento diff a b c",
                "too many operands: only PATH1 and PATH2 are expected\n  help: usage: obento diff",
            ),
            ("obento --engine native", "missing command\n  help: 'obento help' lists the commands"),
            ("obento cp", "missing operands\n  help: usage: obento cp [OPTIONS] <SOURCE>... <TARGET>"),
            (
                "obento chmod",
                "missing operands\n  help: usage: obento chmod [OPTIONS] <MODE> <IMAGE:PATH>...",
            ),
        ] {
            assert!(text(line).starts_with(reported), "{}", text(line));
        }
        for line in ["truncate -s +1 -r a:/b a:/c", "fallocate -d -l 9 a:/b", "setfattr -x user.a a:/b"] {
            let words = ["obento"].into_iter().chain(line.split(' '));
            assert!(crate::cli::parse(words.map(OsString::from)).is_ok(), "{line}");
        }
    }

    #[test]
    fn arguments_that_exclude_each_other_and_unknown_arguments_are_named() {
        for (line, reported) in [
            (
                "obento resize a --maximum --minimum",
                "--maximum cannot be used with --minimum\n  help: 'obento help resize' describes the options",
            ),
            (
                "obento setfattr -n user.a -x user.b a:/b",
                "-n (--name) cannot be used with -x (--remove)\n  help: 'obento help setfattr' describes the options",
            ),
            ("obento --foo ls", "unknown option '--foo'\n  help: 'obento help options' lists the options"),
            ("obento ls --version", "unknown option '--version'\n  help: 'obento help ls' lists the options"),
            (
                "obento ls --json=x\n\ny a",
                "unexpected value 'x\\n\\ny' for --json\n  help: 'obento help ls' describes the options",
            ),
            ("obento ls --foo a", "unknown option '--foo'\n  help: 'obento help ls' lists the options"),
            (
                "obento ls --recursiv a",
                "unknown option '--recursiv'\n  help: did you mean '--recursive'? 'obento help ls' lists the options",
            ),
            (
                "obento resize a -1M",
                "a size cannot start with '-'\n  help: write the new size, or use --minimum to shrink the volume as \
                 far as possible",
            ),
            ("obento mkfs a -1M", "a size cannot start with '-'\n  help: write a size such as 10M"),
            (
                "obento resize a --max",
                "unknown option '--max'\n  help: did you mean '--maximum'? 'obento help resize' lists the options",
            ),
            ("obento resize a --m", "unknown option '--m'\n  help: 'obento help resize' lists the options"),
            (
                "obento part a grow -x",
                "unknown option '-x'\n  help: 'obento help part grow' lists the options",
            ),
            ("obento part a b", "unknown command 'b'\n  help: 'obento help part' lists the commands"),
            ("obento part a list b", "unexpected operand 'b'\n  help: usage: obento part <DISK> list"),
            ("obento cat --json a:/b", "'cat' has no JSON output\n  help: omit --json"),
            (
                "obento types --journal a",
                "--journal cannot be used with 'types', which opens no volume\n  help: omit --journal",
            ),
        ] {
            assert_eq!(text(line), reported);
        }
    }

    #[test]
    fn arguments_in_an_error_of_usage_cannot_control_the_terminal() {
        let text = text("obento --a\u{1b}[31m\u{9b}\u{202e}\u{200b}");
        assert!(text.contains(r"\033[31m\302\233\342\200\256"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || obento::base::is_printable(c)), "{text:?}");
    }
}
