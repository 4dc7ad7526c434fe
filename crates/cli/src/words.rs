//! Words of a command line that clap cannot parse: numbers as options (`head -20`), and operands that start with `-`
//! (`chmod -w FILE`).
//!
//! Invariant: a word that starts with `--` is an option unless it follows `--`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

/// Replaces the words that clap cannot parse.
pub fn rewritten(command: &Command, arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = arguments.into_iter().collect();
    let Some((at, found)) = subcommand(command, &words) else { return words };
    let rest = words.split_off(at + 1);
    words.extend(match found.get_name() {
        "chmod" => Operands::new(command, found, rest).with_dashed(DashedWords::OneOperand),
        "chattr" => Operands::new(command, found, rest).with_dashed(DashedWords::Operands),
        name => match COUNTS.iter().find(|(known, ..)| *known == name) {
            Some((_, option, values)) => with_counts(rest, option, values),
            None => rest,
        },
    });
    words
}

/// Returns the subcommand that `words` name, and its position. The first word is the program.
pub fn subcommand<'c>(command: &'c Command, words: &[OsString]) -> Option<(usize, &'c Command)> {
    let mut words = words.iter().enumerate().skip(1);
    while let Some((at, word)) = words.next() {
        let bytes = word.as_encoded_bytes();
        if !bytes.starts_with(b"-") {
            return command.find_subcommand(word).map(|found| (at, found));
        }
        // The value of a global option may look like a subcommand.
        if command.get_arguments().any(|arg| takes_next(&arg) && is_named(arg, bytes)) {
            words.next();
        }
    }
    None
}

/// The options that a number alone stands for: `head -20` is `head -n 20`.
///
/// The last part are the options whose value is the next word, which may look like a number alone.
const COUNTS: &[(&str, &str, &[&str])] = &[
    ("head", "-n", &["-n", "-c"]),
    ("tail", "-n", &["-n", "-c"]),
    ("grep", "-C", &["-A", "-B", "-C", "-e", "-f", "-m"]),
];

/// Replaces `-20` in the words after a command of [`COUNTS`] by its option and the number.
fn with_counts(words: Vec<OsString>, option: &str, values: &[&str]) -> Vec<OsString> {
    let is_number = |word: &OsString| {
        let digits = word.as_encoded_bytes().strip_prefix(b"-");
        digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    };
    let mut out: Vec<OsString> = Vec::new();
    let mut rest = words.into_iter();
    for word in rest.by_ref() {
        let is_value = out.last().is_some_and(|last| values.iter().any(|value| last == *value));
        match is_number(&word) && !is_value {
            true => out.extend([option.into(), OsString::from(&word.to_string_lossy()[1..])]),
            false => out.push(word),
        }
        if out.last().is_some_and(|last| last == "--") {
            break;
        }
    }
    out.extend(rest);
    out
}

/// The meaning of several operands that start with `-`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DashedWords {
    /// Parts of one mode: `chmod -w -x` is `chmod -w,-x`.
    OneOperand,
    /// Operands.
    Operands,
}

/// The words of a command whose first operand may start with `-`, divided as getopt(3) does: options and operands may
/// be mixed.
struct Operands {
    options: Vec<OsString>,
    /// Operands that start with `-`.
    dashed: Vec<OsString>,
    operands: Vec<OsString>,
}

impl Operands {
    fn new(command: &Command, subcommand: &Command, words: Vec<OsString>) -> Self {
        let known: Vec<&Arg> = command.get_arguments().chain(subcommand.get_arguments()).collect();
        let mut divided = Self { options: Vec::new(), dashed: Vec::new(), operands: Vec::new() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_encoded_bytes() {
                b"--" => divided.operands.extend(words.by_ref()),
                [b'-', b'-', name @ ..] => {
                    let has_value = known.iter().any(|arg| takes_next(arg) && is_long(arg, name));
                    divided.options.push(word);
                    divided.options.extend(words.by_ref().take(usize::from(has_value)));
                }
                [b'-', letters @ ..] if is_short(subcommand, letters) => {
                    let last = letters.last().copied().map(char::from);
                    let has_value = known.iter().any(|arg| takes_next(arg) && arg.get_short() == last);
                    divided.options.push(word);
                    divided.options.extend(words.by_ref().take(usize::from(has_value)));
                }
                [b'-', _, ..] => divided.dashed.push(word),
                _ => divided.operands.push(word),
            }
        }
        divided
    }

    /// Returns the options, `--`, and the operands. Those that start with `-` are first.
    fn with_dashed(self, meaning: DashedWords) -> Vec<OsString> {
        let Self { options, dashed, operands } = self;
        let dashed = match meaning {
            DashedWords::OneOperand if !dashed.is_empty() => vec![dashed.join(OsStr::new(","))],
            _ => dashed,
        };
        let end = (!dashed.is_empty() || !operands.is_empty()).then(|| OsString::from("--"));
        options.into_iter().chain(end).chain(dashed).chain(operands).collect()
    }
}

/// Returns whether the word after the option is its value.
fn takes_next(arg: &&Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Returns whether `word` is the option, without a value in the same word.
fn is_named(arg: &Arg, word: &[u8]) -> bool {
    match word {
        [b'-', b'-', name @ ..] => is_long(arg, name),
        [b'-', .., letter] => arg.get_short() == Some(char::from(*letter)),
        _ => false,
    }
}

fn is_long(arg: &Arg, name: &[u8]) -> bool {
    let names = arg.get_long_and_visible_aliases().unwrap_or_default();
    names.iter().any(|known| known.as_bytes() == name)
}

/// Returns whether `letters` begins with the letter of an option.
fn is_short(subcommand: &Command, letters: &[u8]) -> bool {
    let first = letters.first().copied().map(char::from);
    first.is_some() && subcommand.get_arguments().any(|arg| arg.get_short() == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> String {
        let words = rewritten(&crate::help::command(), line.split(' ').map(OsString::from));
        words.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_number_alone_is_a_count() {
        for (line, expected) in [
            ("obento head -20 a:/b", "obento head -n 20 a:/b"),
            ("obento -t ext4 tail -5 a:/b", "obento -t ext4 tail -n 5 a:/b"),
            ("obento head -n -5 a:/b", "obento head -n -5 a:/b"),
            ("obento --journal grep head -5 a:/b", "obento --journal grep head -n 5 a:/b"),
            ("obento --journal=grep -o head tail -5 a:/b", "obento --journal=grep -o head tail -n 5 a:/b"),
            ("obento grep -c -2 x a:/b", "obento grep -c -C 2 x a:/b"),
            ("obento grep -e -2 a:/b", "obento grep -e -2 a:/b"),
            ("obento find head -size -5", "obento find head -size -5"),
            ("obento head -- -5", "obento head -- -5"),
        ] {
            assert_eq!(words(line), expected);
        }
    }

    #[test]
    fn options_after_operands_stay_options_and_modes_stay_operands() {
        for (line, expected) in [
            ("obento chmod -R 700 a:/ --preserve-root", "obento chmod -R --preserve-root -- 700 a:/"),
            ("obento chmod -w a:/b -v", "obento chmod -v -- -w a:/b"),
            ("obento chmod a:/b -w -x", "obento chmod -- -w,-x a:/b"),
            ("obento chmod a:/b --reference a:/c", "obento chmod --reference a:/c -- a:/b"),
            ("obento chmod a:/b --reference=a:/c", "obento chmod --reference=a:/c -- a:/b"),
            ("obento chmod 700 -- --json", "obento chmod -- 700 --json"),
            ("obento chmod --help", "obento chmod --help"),
            ("obento --journal chmod ls -l a:/", "obento --journal chmod ls -l a:/"),
            ("obento chattr -R -i +a a:/b -V", "obento chattr -R -V -- -i +a a:/b"),
            ("obento chattr a:/b -p 3 --fs-type ext4", "obento chattr -p 3 --fs-type ext4 -- a:/b"),
            ("obento chattr -z a:/b", "obento chattr -- -z a:/b"),
        ] {
            assert_eq!(words(line), expected);
        }
    }
}
