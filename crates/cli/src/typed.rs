//! Options as the user typed them, for messages: clap names an option by its long name, also if the user typed its
//! letter.

use std::ffi::OsString;

use clap::Command;

use crate::words::subcommand;

/// The words that the user typed, and the options of the command in them.
pub struct TypedWords<'w> {
    words: &'w [OsString],
    /// Long names and their letters.
    letters: Vec<(String, char)>,
    /// The names of the command and of the commands in it.
    command: Vec<String>,
}

impl<'w> TypedWords<'w> {
    /// Finds the options of the command of `tree` that `words` name. The first word is the program.
    pub fn new(words: &'w [OsString], tree: &Command) -> Self {
        let mut letters = letters(tree);
        let mut names = Vec::new();
        if let Some((at, found)) = subcommand(tree, words) {
            let mut command = found;
            names.push(command.get_name().to_owned());
            letters.extend(self::letters(command));
            for word in &words[at + 1..] {
                if let Some(inner) = command.find_subcommand(word) {
                    command = inner;
                    names.push(command.get_name().to_owned());
                    letters.extend(self::letters(command));
                }
            }
        }
        Self { words, letters, command: names }
    }

    /// Returns the command that shows the options of the command that the user typed. `help` shows help.
    pub fn help(&self, help: &str) -> String {
        let topic = if self.command.is_empty() { "options".to_owned() } else { self.command.join(" ") };
        format!("{help} {topic}")
    }

    /// Returns the letter of the option `long` if the user typed the letter.
    fn letter(&self, long: &str) -> Option<char> {
        let letters = self.letters.iter().filter(|(name, _)| name == long);
        letters.map(|(_, letter)| *letter).find(|letter| self.options().any(|word| has_letter(word, *letter)))
    }

    fn has_long(&self, long: &str) -> bool {
        self.options().any(|word| word.split('=').next() == Some(long))
    }

    /// Returns whether the user typed the option `long`, or its letter. An operand counts as typed.
    pub fn contains(&self, long: &str) -> bool {
        !long.starts_with('-') || self.has_long(long) || self.letter(long).is_some()
    }

    /// Returns the name of an option as the user typed it: `-p (--safe)`.
    pub fn name(&self, long: &str) -> String {
        match self.letter(long).filter(|_| !self.has_long(long)) {
            Some(letter) => format!("-{letter} ({long})"),
            None => long.to_owned(),
        }
    }

    fn options(&self) -> impl Iterator<Item = &str> {
        let words = self.words.iter().filter_map(|word| word.to_str());
        words.take_while(|word| *word != "--").filter(|word| word.starts_with('-'))
    }
}

/// Returns the options of `command` that have a letter.
fn letters(command: &Command) -> Vec<(String, char)> {
    let pair = |arg: &clap::Arg| Some((format!("--{}", arg.get_long()?), arg.get_short()?));
    command.get_arguments().filter_map(pair).collect()
}

/// Returns whether `word` is a group of letters, such as `-py`, with this letter.
fn has_letter(word: &str, letter: char) -> bool {
    word.strip_prefix('-').is_some_and(|letters| !letters.starts_with('-') && letters.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_as_it_was_typed() {
        let name = |line: &str, long: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            TypedWords::new(&words, &crate::help::command()).name(long)
        };
        assert_eq!(name("obento check -py a", "--yes"), "-y (--yes)");
        assert_eq!(name("obento check --yes a", "--yes"), "--yes");
        assert_eq!(name("obento part a add -s x", "--size"), "-s (--size)");
        assert_eq!(name("obento check -- -y", "--yes"), "--yes");
        assert_eq!(name("obento check -y a", "IMAGE"), "IMAGE");
        let help = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            TypedWords::new(&words, &crate::help::command()).help("obento help")
        };
        assert_eq!(help("obento head -n"), "obento help head");
        assert_eq!(help("obento part a add -s"), "obento help part add");
        assert_eq!(help("obento -t"), "obento help options");
    }
}
